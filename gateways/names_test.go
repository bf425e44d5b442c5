package gateways

import (
	"errors"
	"testing"
)

// refused prepares and reports whether the request was refused as bad.
func refused(t *testing.T, g *Gateway, in Inbound) bool {
	t.Helper()
	_, err := match(t, g, in).Prepare(in, ident)
	if err == nil {
		return false
	}
	if _, ok := errors.AsType[*BadRequest](err); !ok {
		t.Fatal(err)
	}
	return true
}

// TestQueryOverridesNothing: some gateways merge the query into the body, so it may not name what we read or write there.
func TestQueryOverridesNothing(t *testing.T) {
	g := stripe(t)
	for query, want := range map[string]bool{
		"metadata[fence_ref]=x": true, "metadata%5Bfence_ref%5D=x": true, "%6Detadata[fence%5fref]=x": true, "metadata[fence_capture_ref]=x": true,
		"metadata=x": true, "metadata[fence_ref][]=x": true, "metadata.fence_ref=x": true, "metadata[fence_ref=x": true, "+metadata[fence_ref]=x": true,
		"amount=1": true, "a=b&amount": true, "amount[]=1": true, "a=b;amount=1": true, "%zz&%61mount=1": true, "currency=usd": true, "confirm=false": true, "Amount=1": true,
		"expand[]=latest_charge": false, "expand%5B%5D=x": false, "metadata[order]=7": false, "a=amount": false, "amounts=1": false, "": false,
	} {
		in := post("/v1/payment_intents?"+query, mediaForm, "amount=100&currency=eur")
		if got := refused(t, g, in); got != want {
			t.Errorf("%s: refused %v", query, got)
		}
	}
	// On a route without a reference of its own, our fields only.
	for query, want := range map[string]bool{"metadata[fence_ref]=x": true, "metadata[fence_capture_ref]=x": true, "amount=1": false} {
		if got := refused(t, g, post("/v1/customers?"+query, mediaForm, "")); got != want {
			t.Errorf("customers, %s: refused %v", query, got)
		}
	}
	p := generic(t)
	p.Key = &KeyPlace{Field: "idempotency_key", Shape: Shape{Alphabet: "hex", Length: 45}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]bool{"idempotency_key=x": true, "reference=x": true, "money[amount]=1": true, "money.currency=x": true, "money=1": true, "x=1": false} {
		if got := refused(t, p, post("/charges?"+query, "application/json", `{"money":{"amount":1}}`)); got != want {
			t.Errorf("plain, %s: refused %v", query, got)
		}
	}
}

// TestOwnedReferences: an object that carries another call's reference would be taken for that call's, so an app may write
// ours nowhere; on the route that stamps it, it is replaced.
func TestOwnedReferences(t *testing.T) {
	const update, create = "/v1/payment_intents/pi_other", "/v1/payment_intents"
	g := stripe(t)
	g.Routes = append([]*Route{{Name: "json", Method: "POST", Path: "/v1/json", Reference: &RefPlace{Field: "fence.ref", Owned: true, Body: "json"}}}, g.Routes...)
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	json, multipart := "application/json", "multipart/form-data; boundary=x"
	for _, tt := range []struct {
		target, media, body string
		want                bool
	}{
		{update, mediaForm, "metadata[fence_ref]=x", true},
		{update, mediaForm, "metadata%5Bfence_capture_ref%5D=x", true},
		{update, mediaForm, "metadata[fence_ref]=", true},
		{update, mediaForm, "metadata[fence_ref][]=x", true},
		{update, mediaForm, "metadata[fence_ref]=x&a=%zz", true},
		{update, "", "metadata[fence_ref]=x", true},
		{update, json, `{"metadata":{"fence_ref":"x"}}`, true},
		{update, json, `{"metadata":{"fence_ref":"x"},"metadata":{}}`, true},
		{update, json, `{"metadata":{"\u0066ence_ref":"x"}}`, true},
		{update, json, `{"metadata[fence_ref]":"x"}`, true},
		{update, json, `[{"metadata":{"fence_ref":"x"}}]`, true},
		{update, json, `{"fence":{"ref":1}}`, true},
		{update, multipart, "--x\r\nContent-Disposition: form-data; name=\"metadata[fence_ref]\"\r\n\r\nx\r\n--x--", true},
		{update, mediaForm, "metadata[order]=1&description=fence_ref", false},
		{update, mediaForm, "metadata=", false},
		{update, json, `{"metadata":{"order":"fence_ref"},"x":{"metadata":{"fence_ref":1}}}`, false},
		{create, mediaForm, "amount=1&metadata[fence_ref]=old", false}, // replaced
		{create, mediaForm, "amount=1&metadata[fence_capture_ref]=old", true},
		{create, mediaForm, "amount=1&metadata[Fence_Ref]=old", true},
		{"/v1/credit_notes", mediaForm, "metadata[fence_ref]=old", false}, // replaced
		{"/v1/credit_notes", multipart, `name="metadata[fence_ref]"`, true},
		{"/v1/payment_intents/pi_1/capture", mediaForm, "metadata[fence_ref]=old", true},
		{"/v1/json", json, `{"fence":{"ref":1}}`, false}, // replaced
		{"/v1/json", json, `{"fence":{"Ref":1}}`, true},
		{"/v1/json", mediaForm, "fence[ref]=1", true},
	} {
		if got := refused(t, g, post(tt.target, tt.media, tt.body)); got != tt.want {
			t.Errorf("%s %s: refused %v", tt.target, tt.body, got)
		}
	}
}
