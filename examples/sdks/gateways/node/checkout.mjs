// Checkout.com's Node SDK through the sidecar: host, and a client for each call, since only the client takes headers. A headers
// member of a request would become part of its body.
import { Checkout } from 'checkout-sdk-node';
import { KEY, main } from './scenes.mjs';

const client = (host, headers) => new Checkout(KEY, { host, headers });

function read(payment) {
  const states = { Authorized: 'paid', Captured: 'paid', Pending: 'pending', Declined: 'declined' };
  return { id: payment.id, state: states[payment.status] ?? payment.status };
}

await main((address) => ({
  gateway: 'checkout',
  asks: false, // a key stands for 2xx answers only: nothing is sent again after a doubt
  steps: 2, // authorized, then captured
  silent: ['not-sent'], // of a 502 the SDK keeps the status only
  again: ['unknown-gateway'], // fetch repeats a 421 on another connection (RFC 9110, section 15.5.20)

  async pay({ amount, headers, how }) {
    const call = how === 'slow' ? { ...headers, 'Sandbox-Fault': 'processing' } : headers;
    // An amount that ends in 05 is declined. The reference is left to the sidecar.
    const body = { amount, currency: 'EUR', source: { type: 'token', token: 'tok_example' } };
    return read(await client(address, call).payments.request(body));
  },
  show: async ({ id }) => read(await client(address).payments.get(id)),
  code: (err) => err.body?.error_type,
  status: (err) => err.http_code || undefined,
}));
