package passwordhash

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHash(t *testing.T) {
	text, err := New("correct horse")
	require.NoError(t, err)
	again, err := New("correct horse")
	require.NoError(t, err)
	assert.NotEqual(t, text, again, "the salt is random")
	h, err := Parse(text)
	require.NoError(t, err)
	assert.True(t, h.Matches("correct horse"))
	assert.False(t, h.Matches("correct horses"))
}

func TestGenerate(t *testing.T) {
	password, text := Generate()
	other, _ := Generate()
	assert.NotEqual(t, other, password)
	h, err := Parse(text)
	require.NoError(t, err)
	assert.True(t, h.Generated())
	assert.True(t, h.Matches(password))
	for _, wrong := range []string{"", other, password + "x", password[1:], strings.Repeat("x", maxLength+1)} {
		assert.False(t, h.Matches(wrong), wrong)
	}
	chosen, err := Parse("$pbkdf2-sha256$i=10000$MDEyMzQ1Njc4OWFiY2RlZg$0YdT6cDcX5qiDagy0ie+FrM2RN8V8MC0buKrDrj+aAU")
	require.NoError(t, err)
	assert.False(t, chosen.Generated())
}

// A password that a person chose does not match, if somebody has hashed it as Generate does.
func TestParse_ChosenWithoutIterations(t *testing.T) {
	sum := sha256.Sum256([]byte("correct horse"))
	h, err := Parse("$sha256$" + base64.RawStdEncoding.EncodeToString(sum[:]))
	require.NoError(t, err)
	assert.False(t, h.Matches("correct horse"))
}

func TestNew_Length(t *testing.T) {
	for _, password := range []string{"", "1234567", strings.Repeat("x", maxLength+1)} {
		_, err := New(password)
		assert.Error(t, err)
	}
}

// TestParse_Vector has a hash that another implementation made:
// python3 -c "import hashlib,base64;print(base64.b64encode(hashlib.pbkdf2_hmac('sha256',b'password',b'0123456789abcdef',10000)))"
func TestParse_Vector(t *testing.T) {
	h, err := Parse("$pbkdf2-sha256$i=10000$MDEyMzQ1Njc4OWFiY2RlZg$0YdT6cDcX5qiDagy0ie+FrM2RN8V8MC0buKrDrj+aAU")
	require.NoError(t, err)
	assert.True(t, h.Matches("password"))
	for _, wrong := range []string{"", "passwor", "password ", "Password", strings.Repeat("x", maxLength+1)} {
		assert.False(t, h.Matches(wrong), wrong)
	}
}

func TestParse_Malformed(t *testing.T) {
	for _, text := range []string{
		"", "password", "$sha256$", "$sha256$MDEy", "$sha256$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "$2y$10$abcdefghijklmnopqrstuv", "$pbkdf2-sha256$i=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY",
		"$pbkdf2-sha256$i=10000$c2FsdA$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "$pbkdf2-sha256$i=10000$MDEyMzQ1Njc4OWFiY2RlZg$aGFzaA",
		"$pbkdf2-sha256$i=10000x$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "$pbkdf2-sha256$i=99999999999$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY",
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "MDEy")
	}
}
