package console

import (
	_ "embed" // the description

	"net/http"
)

//go:embed openapi.yaml
var description []byte

// openapi serves the API's description.
func (c *Console) openapi(x *exchange) error {
	x.write(http.StatusOK, "application/yaml", description)
	return nil
}
