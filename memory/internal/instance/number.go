package instance

import (
	"encoding/json"
	"math/big"
	"math/bits"
)

// numberFor returns a number within the bounds of rules, another for each
// variant, if it finds one.
func numberFor(rules []*object, integer bool, variant int) (json.Number, bool) {
	var low, high, step *big.Rat
	var above, below bool // whether the bounds are exclusive
	if integer {
		step = big.NewRat(1, 1)
	}
	for _, o := range rules {
		for _, b := range o.bounds() {
			switch {
			case b.lower && (low == nil || b.at.Cmp(low) > 0 || b.at.Cmp(low) == 0 && b.exclusive):
				low, above = b.at, b.exclusive
			case !b.lower && (high == nil || b.at.Cmp(high) < 0 || b.at.Cmp(high) == 0 && b.exclusive):
				high, below = b.at, b.exclusive
			}
		}
		if m := o.number("multipleOf"); m != nil && m.Sign() > 0 {
			step = commonMultiple(step, m)
		}
	}
	var n *big.Rat
	i := int64(variant)
	switch {
	case step != nil && step.Num().BitLen()+step.Denom().BitLen() > 8192:
		return "", false
	case step != nil && low != nil:
		k := new(big.Rat).Quo(low, step)
		n = multiple(step, ceil(k, above), i)
	case step != nil && high != nil:
		k := new(big.Rat).Quo(high, step)
		k.Neg(k)
		n = multiple(step, new(big.Int).Neg(ceil(k, below)), -i)
	case step != nil:
		n = multiple(step, big.NewInt(1), i)
	case low != nil && high != nil && (above || i > 0):
		n = between(low, high, uint64(i))
	case low != nil && above:
		n = new(big.Rat).Add(low, big.NewRat(1+i, 1))
	case low != nil:
		n = new(big.Rat).Add(low, big.NewRat(i, 1))
	case high != nil && below:
		n = new(big.Rat).Sub(high, big.NewRat(1+i, 1))
	case high != nil:
		n = new(big.Rat).Sub(high, big.NewRat(i, 1))
	default:
		n = big.NewRat(1+i, 1)
	}
	return decimal(n)
}

// A bound is a limit to numbers.
type bound struct {
	at        *big.Rat
	lower     bool
	exclusive bool
}

// bounds returns those of o. In draft 4, what is exclusive is a boolean.
func (o *object) bounds() []bound {
	var list []bound
	for _, b := range []struct {
		name, exclusive string
		lower           bool
	}{
		{"minimum", "exclusiveMinimum", true},
		{"maximum", "exclusiveMaximum", false},
	} {
		if at := o.number(b.name); at != nil {
			list = append(list, bound{at, b.lower, o.members[b.exclusive] == true})
		}
		if at := o.number(b.exclusive); at != nil {
			list = append(list, bound{at, b.lower, true})
		}
	}
	return list
}

// allows reports whether n is within b.
func (b bound) allows(n *big.Rat) bool {
	c := n.Cmp(b.at)
	if !b.lower {
		c = -c
	}
	return c > 0 || c == 0 && !b.exclusive
}

// commonMultiple returns the least number that is a multiple of both. A nil
// one has every multiple.
func commonMultiple(a, b *big.Rat) *big.Rat {
	if a == nil {
		return b
	}
	gcd := new(big.Int).GCD(nil, nil, a.Num(), b.Num())
	num := new(big.Int).Mul(a.Num(), new(big.Int).Quo(b.Num(), gcd))
	return new(big.Rat).SetFrac(num, new(big.Int).GCD(nil, nil, a.Denom(), b.Denom()))
}

// ceil returns the least integer that is at least r, or more than r.
func ceil(r *big.Rat, more bool) *big.Int {
	n := new(big.Int).Neg(r.Num())
	n.Div(n, r.Denom()) // rounds down, as the divisor is positive
	n.Neg(n)
	if more && r.IsInt() {
		n.Add(n, big.NewInt(1))
	}
	return n
}

// multiple returns (k+i)*step.
func multiple(step *big.Rat, k *big.Int, i int64) *big.Rat {
	k = new(big.Int).Add(k, big.NewInt(i))
	return new(big.Rat).Mul(step, new(big.Rat).SetInt(k))
}

// between returns a number between low and high, another for each i: first the
// middle, then the middles of the halves, and so on.
func between(low, high *big.Rat, i uint64) *big.Rat {
	level := bits.Len64(i+1) - 1
	part := big.NewRat(int64(2*(i+1-1<<level)+1), 2<<level)
	part.Mul(part, new(big.Rat).Sub(high, low))
	return part.Add(part, low)
}
