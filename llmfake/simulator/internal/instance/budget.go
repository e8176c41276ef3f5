package instance

// A budget counts the steps of making and validating values.
type budget struct{ left int }

// spend uses up n steps. It panics with errTooComplex if fewer are left.
func (b *budget) spend(n int) {
	b.left -= n
	if b.left < 0 {
		panic(errTooComplex)
	}
}

// isLow reports whether more than half of the steps are used up. What the schema does not
// require is then left out.
func (b *budget) isLow() bool { return b.left < maxSteps/2 }
