package instance

import (
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// A format is one that JSON Schema names.
type format struct {
	example func(variant, least int) string // least is in characters, for formats that can be long
	valid   func(string) bool               // nil if everything passes
}

var formats = map[string]format{
	"date":      {day("2006-01-02"), timeIn("2006-01-02")},
	"date-time": {day(time.RFC3339), timeIn(time.RFC3339)},
	"time":      {func(v, _ int) string { return start.Add(time.Duration(v) * time.Second).Format("15:04:05Z") }, timeIn("15:04:05Z07:00")},
	"duration":  {func(v, _ int) string { return fmt.Sprintf("P%dD", v+1) }, func(s string) bool { return strings.HasPrefix(s, "P") }},
	"email":     {email, isEmail},
	"idn-email": {email, isEmail},
	"hostname": {func(v, _ int) string { return pick(v, "example.com", "host%d.example.com") },
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`).MatchString},
	"idn-hostname":          {func(v, _ int) string { return pick(v, "example.com", "host%d.example.com") }, nil},
	"ipv4":                  {func(v, _ int) string { return fmt.Sprintf("192.0.%d.%d", 2+v/250%250, 1+v%250) }, isIP(netip.Addr.Is4)},
	"ipv6":                  {func(v, _ int) string { return fmt.Sprintf("2001:db8::%x", 1+v%65535) }, isIP(netip.Addr.Is6)},
	"uri":                   {address, isAddress},
	"iri":                   {address, isAddress},
	"url":                   {address, isAddress},
	"uri-reference":         {address, nil},
	"iri-reference":         {address, nil},
	"uri-template":          {address, nil},
	"uuid":                  {func(v, _ int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", v+1) }, uuid.MatchString},
	"json-pointer":          {func(v, _ int) string { return fmt.Sprintf("/%d", v) }, nil},
	"relative-json-pointer": {func(v, _ int) string { return fmt.Sprint(v) }, nil},
	"regex":                 {func(v, _ int) string { return pick(v, ".*", ".{%d}") }, nil},
	"byte":                  {func(v, _ int) string { return fmt.Sprintf("%04d", v%10000) }, nil}, // base64
}

var (
	uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

	// start is what the first example of a time says.
	start = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
)

// example returns a string of the format of that name, if it is known.
func example(name string, variant, least int) (string, bool) {
	f, ok := formats[name]
	if !ok {
		return "", false
	}
	return f.example(variant, least), true
}

// isFormat reports whether s may be of the format of that name.
func isFormat(name, s string) bool {
	valid := formats[name].valid
	return valid == nil || valid(s)
}

func day(layout string) func(int, int) string {
	return func(variant, _ int) string { return start.AddDate(0, 0, variant).Format(layout) }
}

func timeIn(layout string) func(string) bool {
	return func(s string) bool {
		_, err := time.Parse(layout, s)
		return err == nil
	}
}

func isIP(of func(netip.Addr) bool) func(string) bool {
	return func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && of(a) && a.Zone() == ""
	}
}

func email(variant, least int) string {
	return pad(pick(variant, "user", "user%d"), least-len("@example.com")) + "@example.com"
}

func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}

func address(variant, least int) string {
	return pad(pick(variant, "https://example.com/", "https://example.com/%d"), least)
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs()
}

// pick returns first for variant 0 and, for others, the number in format.
func pick(variant int, first, format string) string {
	if variant == 0 {
		return first
	}
	return fmt.Sprintf(format, variant+1)
}

func pad(s string, least int) string {
	return s + strings.Repeat("x", max(0, least-len(s)))
}
