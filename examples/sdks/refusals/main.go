// Command refusals serves every refusal of the sidecar on a free loopback port, prints its address and serves until it is
// killed. Package problems says what it answers.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fence-sidecar/fence-sidecar/examples/sdks/problems"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

func main() {
	gateway := flag.String("gateway", "stripe", "the built-in gateway whose error shape is given")
	fault := flag.String("fault", "", "no-shape, no-header, wrong-shape: leave the gateway's error shape or its headers out, or give another's, which checks must notice")
	flag.Parse()
	if _, ok := gateways.Declared(*gateway); !ok {
		fmt.Fprintf(os.Stderr, "refusals: no gateway %q\n", *gateway)
		os.Exit(2)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		srv := &http.Server{Handler: &problems.Handler{Gateway: *gateway, Fault: problems.Fault(*fault)}, ReadHeaderTimeout: 10 * time.Second}
		err = srv.Serve(l)
	}
	fmt.Fprintln(os.Stderr, "refusals:", err)
	os.Exit(1)
}
