package llmhttp

// A SubjectID names one of those whose use is limited and recorded: the key of a request,
// its account, the end user behind it, or a subject of another kind that the host defines,
// such as a team. IDs of different kinds have nothing in common: account "a" is not key "a".
type SubjectID struct {
	Kind string // one to 32 lower-case letters, digits, hyphens and underscores
	ID   string // any text; unique within its kind
}

// The kinds of subjects that a [Handler] knows.
const (
	KindKey     = "key"
	KindAccount = "account"
	KindUser    = "user" // an end user, whom the client names
)
