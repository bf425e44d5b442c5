package checklist

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The listener of the way out counts the keys that it was told of, and keeps none that anybody else sends.
func TestEgressCountsItsOwnKeys(t *testing.T) {
	o, err := listenOrigin(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	o.expect("ours")
	for i, key := range []string{"ours", "a", "b", "ours", ""} {
		url := fmt.Sprintf("http://%s%sstatus-503/%s", o.addr, egressPath, key)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("request %d was answered %d", i, res.StatusCode)
		}
	}
	if o.count("ours") != 2 || len(o.arrived) != 1 {
		t.Errorf("counted %v", o.arrived)
	}
}
