package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/proxy/console"
)

// Operator is somebody who may change calls on the control listener.
type Operator struct {
	Name  string          `yaml:"name"`
	Token gateways.Secret `yaml:"token"`
}

// maxOperatorName bounds an operator's name, in bytes: it stands in every record that the operator decides.
const maxOperatorName = 100

func (c *Config) checkOperators() error {
	for i, o := range c.Operators {
		field := fmt.Sprintf("operators[%d]", i)
		same := func(other Operator) bool { return other.Name == o.Name || other.Token == o.Token }
		switch {
		case o.Name == "" || len(o.Name) > maxOperatorName || !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, unicode.IsControl):
			return c.bad(field+".name", o.Name, fmt.Sprintf("1 to %d bytes without control characters", maxOperatorName))
		case (o.Token.Env == "") == (o.Token.File == ""):
			return c.bad(field+".token", strings.Trim(o.Token.Env+" "+o.Token.File, " "), "either env or file: where the token is")
		case slices.ContainsFunc(c.Operators[:i], same):
			return c.bad(field+".name", o.Name, "each operator once, each with a token of its own")
		}
	}
	return nil
}

// operators are those that the console knows. A token that cannot be used is told at the start; it opens nothing until it can.
func (c *Config) operators(log *slog.Logger) (out []console.Operator) {
	for _, o := range c.Operators {
		token, err := o.Token.Value()
		if err == nil && len(token) < console.MinToken {
			err = fmt.Errorf("it has less than %d bytes", console.MinToken)
		}
		if err != nil {
			log.Warn("an operator's token cannot be used", "operator", o.Name, "error", err)
		}
		out = append(out, console.Operator{Name: o.Name, Token: o.Token.Value})
	}
	return out
}
