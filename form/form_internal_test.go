package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A formPart is a part of a form. It is a file if it has a filename or a type.
type formPart struct{ name, filename, contentType, content string }

const testBoundary = "xYzZY"

// formBody returns a form with parts.
func formBody(t testing.TB, parts ...formPart) string {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(testBoundary))
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q", p.name)}}
		if p.filename != "" {
			h["Content-Disposition"][0] += fmt.Sprintf("; filename=%q", p.filename)
		}
		if p.contentType != "" {
			h.Set("Content-Type", p.contentType)
		}
		part, err := w.CreatePart(h)
		require.NoError(t, err)
		_, err = io.WriteString(part, p.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

// testFields are the fields of forms that are files.
var testFields = []string{"file", "image", "image[]", "mask"}

// readTestForm reads a form, whose files are closed when the test ends.
func readTestForm(t testing.TB, body io.Reader, s *Store) (*Form, error) {
	t.Helper()
	f := &Form{store: s}
	t.Cleanup(func() {
		f.close()
		assert.Zero(t, s.held.Load())
	})
	return f, f.read(body, testBoundary, testFields)
}

func testStore(dir string) *Store { return &Store{MaxFiles: 1 << 20, Dir: dir} }

// eachStorage runs a test with files in memory and with files in a directory, in which none may
// remain.
func eachStorage(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("memory", func(t *testing.T) { test(t, "") })
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		test(t, dir)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, "files have no name while they are open")
	})
}

func TestForm_Read(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 3*fileBlock/16) + "end"
	parts := []formPart{
		{"file", "a.wav", "audio/wav", large}, {"model", "", "", "m"}, {"list[]", "", "", "a"}, {"list[]", "", "", "b"}, {"empty", "", "", ""},
		{"image[]", `C:\pictures\b.png`, "", "png"}, {"image[]", "../c.png", "image/png", ""},
	}
	eachStorage(t, func(t *testing.T, dir string) {
		for round := range 5 {
			shuffled := make([]formPart, len(parts))
			copy(shuffled, parts)
			rand.Shuffle(len(shuffled), func(i, j int) {
				if shuffled[i].name != shuffled[j].name { // whose order counts
					shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
				}
			})
			for _, body := range []io.Reader{strings.NewReader(formBody(t, shuffled...)), iotest.HalfReader(strings.NewReader(formBody(t, shuffled...)))} {
				f, err := readTestForm(t, body, testStore(dir))
				require.NoError(t, err)
				assert.Len(t, f.Values, 3)
				assert.Equal(t, []string{"m"}, f.Values["model"])
				assert.ElementsMatch(t, []string{"a", "b"}, f.Values["list[]"])
				assert.Equal(t, []string{""}, f.Values["empty"])
				require.Len(t, f.Files["file"], 1)
				file := f.Files["file"][0]
				assert.Equal(t, "a.wav", file.Name)
				assert.Equal(t, "audio/wav", file.ContentType)
				assert.EqualValues(t, len(large), file.Size)
				content, err := io.ReadAll(file.Open())
				require.NoError(t, err)
				require.Equal(t, large, string(content))
				if round == 0 { // because it reads a few bytes at a time
					require.NoError(t, iotest.TestReader(file.Open(), []byte(large)))
				}
				require.Len(t, f.Files["image[]"], 2)
				names := []string{f.Files["image[]"][0].Name, f.Files["image[]"][1].Name}
				assert.ElementsMatch(t, []string{"b.png", "c.png"}, names)
			}
		}
	})
}

// When the form is closed, files can no longer be read, also by those that still have them.
func TestForm_Close(t *testing.T) {
	eachStorage(t, func(t *testing.T, dir string) {
		f, err := readTestForm(t, strings.NewReader(formBody(t, formPart{"file", "a", "", "content"})), testStore(dir))
		require.NoError(t, err)
		file := f.Files["file"][0]
		_, err = file.Content.ReadAt(make([]byte, 1), -1)
		require.Error(t, err)
		_, err = file.Content.ReadAt(make([]byte, 1), 7)
		require.ErrorIs(t, err, io.EOF)
		r := file.Open()
		f.close()
		f.close()
		_, err = r.Read(make([]byte, 1))
		require.ErrorIs(t, err, fs.ErrClosed)
	})
}

func TestForm_Bounds(t *testing.T) {
	file := func(size int) formPart { return formPart{"file", "a.wav", "", strings.Repeat("x", size)} }
	many := func(n int) []formPart {
		parts := make([]formPart, n)
		for i := range parts {
			parts[i] = formPart{"x", "", "", "y"}
		}
		return parts
	}
	large := formPart{"large", "", "", strings.Repeat("x", maxValue)}
	for name, test := range map[string]struct {
		body   string
		status int // zero: the form is read
	}{
		"the largest file":          {formBody(t, file(1<<20)), 0},
		"a file that is larger":     {formBody(t, file(1<<20+1)), 413},
		"files that are larger":     {formBody(t, file(1<<19), formPart{"image[]", "b", "", strings.Repeat("x", 1<<19+1)}), 413},
		"the most parts":            {formBody(t, many(bounds.FormParts)...), 0},
		"too many parts":            {formBody(t, many(bounds.FormParts+1)...), 400},
		"the longest value":         {formBody(t, large), 0},
		"a value that is longer":    {formBody(t, formPart{"x", "", "", large.content + "x"}), 400},
		"values that are too much":  {formBody(t, large, large, large, large, large, large, large, large, large, large, large, large, large, large, large, large), 413},
		"a name that is too long":   {formBody(t, formPart{strings.Repeat("n", maxName+1), "", "", ""}), 400},
		"a file's name that is":     {formBody(t, formPart{"file", strings.Repeat("n", maxName+1), "", ""}), 400},
		"a header that is too long": {formBody(t, formPart{"x", "", strings.Repeat("x", maxRest), ""}), 413},
		"what comes before it":      {strings.Repeat("x\r\n", maxRest/3+1) + formBody(t, file(1)), 413},
		"what comes after it":       {formBody(t, file(1)) + strings.Repeat("x", maxRest), 413},
		"no name":                   {formBody(t, formPart{"", "", "", "x"}), 400},
		"a name that is not UTF-8":  {strings.Replace(formBody(t, formPart{"NAME", "", "", "x"}), "NAME", "\xff", 1), 400},
		"a value that is not UTF-8": {formBody(t, formPart{"x", "", "", "\xff"}), 400},
		"no form":                   {"", 400},
		"no end":                    {strings.TrimSuffix(formBody(t, file(3)), "--\r\n"), 400},
		"a file without an end":     {formBody(t, file(300))[:200], 400},
	} {
		t.Run(name, func(t *testing.T) {
			eachStorage(t, func(t *testing.T, dir string) {
				_, err := readTestForm(t, strings.NewReader(test.body), testStore(dir))
				switch told, _ := errors.AsType[*llm.Error](err); test.status {
				case 0:
					require.NoError(t, err)
				default:
					require.NotNil(t, told, "%v", err)
					assert.Equal(t, test.status, told.Status)
				}
			})
		})
	}
}

// A file in a field that takes none is told as that, whatever it contains.
func TestForm_FileInAnotherField(t *testing.T) {
	for _, content := range []string{"\x89PNG\r\n", "text", "", strings.Repeat("x", maxValue+1)} {
		_, err := readTestForm(t, strings.NewReader(formBody(t, formPart{"picture", "a.png", "image/png", content})), testStore(""))
		told, _ := errors.AsType[*llm.Error](err)
		require.NotNil(t, told, "%v", err)
		assert.Equal(t, llm.Error{
			Status: 400, Code: "invalid_type", Param: "picture",
			Message: "Invalid type for 'picture': this field takes no file. Files are in 'file', 'image', 'image[]', 'mask'.",
		}, *told)
	}
}

// The name and the media type of a file have no control characters, nor has the name of a field, so that each may
// be written into a header.
func TestForm_ControlCharacters(t *testing.T) {
	body := func(head string) string {
		return "--" + testBoundary + "\r\n" + head + "\r\n\r\nx\r\n--" + testBoundary + "--\r\n"
	}
	const file = `Content-Disposition: form-data; name="file"; filename="a.wav"` + "\r\nContent-Type: "
	for head, want := range map[string]string{ // the media type
		file + "audio/WAV": "audio/wav", file + "audio/webm;codecs=opus": "audio/webm; codecs=opus", file + "video/webm;codecs=vp8,opus": "video/webm",
		file + "audio/wav;\r\n name=model": "audio/wav; name=model", // a folded line is one line
	} {
		f, err := readTestForm(t, strings.NewReader(body(head)), testStore(""))
		require.NoError(t, err, "%q", head)
		assert.Equal(t, want, f.Files["file"][0].ContentType, "%q", head)
	}
	const disposition = "Content-Disposition: form-data; "
	for head, param := range map[string]string{
		file + "audio/wav\rContent-Disposition: form-data; name=\"model\"":  "", // package net/textproto refuses it
		file + "audio/wav; name=\"\u0085\"":                                 "file",
		file + "audio/":                                                     "file",
		file + "audio/\xff":                                                 "file",
		disposition + `name="file"; filename*=utf-8''a%0D%0AX-Y%3A%20z.wav`: "file",
		disposition + `name="image[]"; filename*=utf-8''a%0Ab.png`:          "image[]",
		disposition + `name*=utf-8''a%0D%0Ab`:                               "",
		disposition + "name=\"a\tb\"":                                       "",
	} {
		_, err := readTestForm(t, strings.NewReader(body(head)), testStore(""))
		told, _ := errors.AsType[*llm.Error](err)
		require.NotNil(t, told, "%q", head)
		assert.Equal(t, 400, told.Status)
		assert.Equal(t, param, told.Param, "%q", head)
	}
}

// Without a bound of files, they do not count toward the bound of the rest.
func TestForm_NoBound(t *testing.T) {
	o := testStore(t.TempDir())
	o.MaxFiles, o.MaxTotal = -1, -1
	f, err := readTestForm(t, strings.NewReader(formBody(t, formPart{"file", "a", "", strings.Repeat("x", 3*maxRest)})), o)
	require.NoError(t, err)
	assert.EqualValues(t, 3*maxRest, f.Files["file"][0].Size)
}

func TestForm_DirectoryIsMissing(t *testing.T) {
	_, err := readTestForm(t, strings.NewReader(formBody(t, formPart{"file", "a", "", "x"})), testStore(t.TempDir()+"/none"))
	require.ErrorIs(t, err, errNotKept)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestFormBoundary(t *testing.T) {
	for contentType, status := range map[string]int{
		"multipart/form-data; boundary=x": 0, `Multipart/Form-Data; charset=utf-8; boundary="a b"`: 0,
		"": 415, "application/json": 415, "multipart/mixed; boundary=x": 415, "application/x-www-form-urlencoded": 415,
		"multipart/form-data": 400, "multipart/form-data; boundary=": 400, "multipart/form-data; boundary": 400,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", contentType)
		boundary, err := boundaryOf(r)
		if status == 0 {
			require.NoError(t, err, contentType)
			assert.NotEmpty(t, boundary)
			continue
		}
		told, _ := errors.AsType[*llm.Error](err)
		require.NotNil(t, told, contentType)
		assert.Equal(t, status, told.Status, contentType)
	}
}

// FuzzForm checks that a form is read within its bounds, and that what is read is what
// mime/multipart reads by itself, whatever the size of reads is.
func FuzzForm(f *testing.F) {
	f.Add([]byte(formBody(f, formPart{"file", "a.wav", "audio/wav", "RIFF"}, formPart{"model", "", "", "m"})), true)
	f.Add([]byte(formBody(f, formPart{"model", "", "", "m"}, formPart{"file", "blob", "audio/webm;codecs=opus", "\x00\xff"}, formPart{"timestamp_granularities[]", "", "", "word"})), false)
	f.Add([]byte(formBody(f, formPart{"file", "", "", ""}, formPart{"file", "b", "", strings.Repeat("x", 5000)})), false)
	f.Add([]byte("--"+testBoundary+"\nContent-Disposition: form-data; name=x\n\ny\n--"+testBoundary+"--\n"), true)
	f.Add([]byte("preamble\r\n--"+testBoundary+"\r\nContent-Disposition: form-data; name*=utf-8''%ff\r\n\r\n\r\n--"+testBoundary+"--\r\nepilogue"), true)
	f.Add([]byte("--"+testBoundary+"\r\nContent-Disposition: form-data; name=\"file\"; filename=\"\xff\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=41=\r\n--"+testBoundary+"--"), false)
	f.Add([]byte(formBody(f, formPart{"image[]", "a.png", "image/png", "\x89PNG"}, formPart{"n", "", "", "2"}, formPart{"mask", "m.png", "", "x"}, formPart{"tags[]", "", "", "\x00"})), false)
	f.Add([]byte("--"+testBoundary+"--"), true)
	f.Fuzz(func(t *testing.T, body []byte, small bool) {
		const maxFiles = 1 << 12
		read := func(r io.Reader) (*Form, error) {
			form, err := readTestForm(t, r, &Store{MaxFiles: maxFiles})
			if err != nil {
				_, told := errors.AsType[*llm.Error](err)
				require.True(t, told, "%v", err)
			}
			return form, err
		}
		got, err := read(bytes.NewReader(body))
		again, err2 := read(iotest.OneByteReader(bytes.NewReader(body)))
		require.Equal(t, err, err2)
		if err != nil {
			return
		}
		require.Equal(t, got.Values, again.Values)
		n := 0
		for _, values := range got.Values {
			n += len(values)
		}
		for _, file := range slices.Concat(slices.Collect(maps.Values(got.Files))...) {
			n++
			require.LessOrEqual(t, file.Size, int64(maxFiles))
			content, err := io.ReadAll(file.Open())
			require.NoError(t, err)
			require.Len(t, content, int(file.Size))
			require.NotContains(t, file.Name, "/")
		}
		require.LessOrEqual(t, n, bounds.FormParts)
		want, err := multipart.NewReader(bytes.NewReader(body), testBoundary).ReadForm(1 << 20)
		require.NoError(t, err)
		for name, values := range want.Value {
			if !slices.Contains(testFields, name) {
				require.Equal(t, values, got.Values[name])
			}
		}
		require.Subset(t, testFields, slices.Collect(maps.Keys(got.Files)))
	})
}
