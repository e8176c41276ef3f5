package llmhttp

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// The values of the fields of a form are texts. These functions parse those of other types.

// parseFormNumber returns the number in the field param.
func parseFormNumber(param, value string) (*float64, error) {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errInvalidText(param, value, "a number")
	}
	return &f, nil
}

// parseFormBool returns the boolean in the field param. Python writes True.
func parseFormBool(param, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, errInvalidValue(param, value, "true", "false")
}

// parseFormList returns the elements of the list param, of which each value is one, or a JSON array
// of some.
func parseFormList(param string, values []string) ([]string, error) {
	var list []string
	for _, v := range values {
		if !strings.HasPrefix(strings.TrimSpace(v), "[") {
			if v != "" {
				list = append(list, v)
			}
			continue
		}
		var elements []string
		if json.Unmarshal([]byte(v), &elements) != nil {
			return nil, errInvalidType(param, "an array of strings", "something else")
		}
		list = append(list, elements...)
	}
	if len(list) > maxFormParts {
		return nil, errLongArray(param, maxFormParts, len(list))
	}
	return list, nil
}
