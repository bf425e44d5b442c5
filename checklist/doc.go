// Package checklist asks a gateway's sandbox what it keeps of G1 to G6: it sends the requests that the gateway's declaration
// names, keeps what was sent and what came back, and judges that. Judgement is a pure function of the evidence, so that evidence can
// be stored, taken up again and judged anew.
//
// It neither serves calls nor reconciles them, and writes no store. Nothing that it shows holds a credential or card data.
package checklist
