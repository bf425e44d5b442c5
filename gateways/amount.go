package gateways

import (
	"math/big"
	"regexp"
)

// decimal bounds what is read as an amount, so that no text makes a number of a million digits.
var decimal = regexp.MustCompile(`^-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$`)

// sameAmount compares two amounts as exact decimals: 10.0 is 10.00. readable is false if one is no decimal.
func sameAmount(a, b string) (same, readable bool) {
	if !decimal.MatchString(a) || !decimal.MatchString(b) {
		return false, false
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	if !ok1 || !ok2 {
		return false, false
	}
	return x.Cmp(y) == 0, true
}
