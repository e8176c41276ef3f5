package modelname

// Names are the two names of a model.
type Names struct {
	Client string // the name that clients use
	Server string // the name that the server uses
}
