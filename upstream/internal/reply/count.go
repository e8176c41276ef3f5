// Replies that are a number of tokens.

package reply

import "encoding/json"

// Count returns the number of tokens that body, the reply to a request for one, has as the given member.
func (r *Reply) Count(body []byte, member string) (int, error) {
	var object map[string]json.RawMessage
	malformed := json.Unmarshal(body, &object)
	var n *int
	if malformed == nil && object[member] != nil {
		malformed = json.Unmarshal(object[member], &n)
	}
	if err := r.Reported(body, object["error"], n != nil); err != nil {
		return 0, err
	}
	switch {
	case malformed != nil:
		return 0, r.Unreadable(body, malformed)
	case n == nil || *n < 0:
		return 0, r.Invalid("the reply has no " + member)
	}
	return *n, nil
}
