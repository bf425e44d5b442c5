package gateways

import (
	"maps"
	"slices"
	"strings"
)

// Levels of a Guarantee.
const (
	Supported    = "supported"
	Partial      = "partial"
	Lacking      = "no"
	Undocumented = "undocumented"
)

// Marks of a Guarantee: how sure its source is.
const (
	MarkDocumented = "documented" // the gateway's own documentation or API description
	MarkSDK        = "sdk"        // read in the gateway's official SDK
	MarkSecondHand = "second-hand"
	MarkInferred   = "inferred"
)

// Guarantee is what a gateway documents of one of G1 to G6.
type Guarantee struct {
	Level  string   `yaml:"level"`  // supported, partial, no, undocumented
	Says   string   `yaml:"says"`   // what exactly, in one or two sentences
	Mark   string   `yaml:"mark"`   // documented, sdk, second-hand, inferred
	Source []string `yaml:"source"` // addresses of pages
}

// GuaranteeNames are the six, in order, with what each asks for.
var GuaranteeNames = []struct{ Name, Asks string }{
	{"G1", "an idempotency key per request"},
	{"G2", "finding a call by its key or by our own reference"},
	{"G3", "a documented retention of keys"},
	{"G4", "a repeat gets the first response"},
	{"G5", "a different request under a used key is refused"},
	{"G6", "late outcomes are told"},
}

func (g *Gateway) validateGuarantees(p *problems) {
	for _, name := range slices.Sorted(maps.Keys(g.Guarantees)) {
		path, v := "guarantees."+plainName(name), g.Guarantees[name]
		known := len(name) == 2 && name[0] == 'G' && name[1] >= '1' && name[1] <= '6'
		p.want(known, path, "", "G1 to G6")
		if v == nil {
			p.add(path, "", "a level")
			return
		}
		p.oneOf(path+".level", &v.Level, "", Supported, Partial, Lacking, Undocumented)
		p.oneOf(path+".mark", &v.Mark, MarkInferred, MarkDocumented, MarkSDK, MarkSecondHand, MarkInferred)
		for _, s := range v.Source {
			p.want(strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://"), path+".source", s, "addresses of pages")
		}
	}
}

// Guarantee is what the gateway documents of one of G1 to G6; undocumented where it declares nothing.
func (g *Gateway) Guarantee(name string) Guarantee {
	if v := g.Guarantees[name]; v != nil {
		return *v
	}
	return Guarantee{Level: Undocumented, Mark: MarkInferred}
}
