// How an application calls Stripe through the sidecar with the official SDK: another host and port, one header per call, and
// one decision per error.
import Stripe from 'stripe';
import { setTimeout as sleep } from 'node:timers/promises';

// The sidecar's port for Stripe, on loopback. The API key stays the application's; the SDK's retries may stay on. The timeout
// is longer than the sidecar's attemptTimeout and wait together: a client that hangs up earlier loses nothing, since the call
// goes on and a repeat gets its answer.
export function client({ apiKey, host = '127.0.0.1', port }) {
  return new Stripe(apiKey, { host, port, protocol: 'http', timeout: 150_000 });
}

// The options of one fenced call. The key names what is to happen once, so it is made of the application's own identifiers,
// never at random: a repeat after a crash must find the same one. The token is what the lease API gave (without it, the call
// has no hand-over protection). undo: 'none' says that a refund or a cancellation compensates no call.
export function fence(key, { token, undo } = {}) {
  const headers = { 'Fence-Key': key };
  if (token) headers['Fence-Token'] = token;
  if (undo) headers['Fence-Undo'] = undo;
  return { headers };
}

// What to do about an error of the SDK:
//   repeat       the very same call under the same key, later: it is not known whether money moved, or nothing could be tried
//   declined     the gateway's no, and the only error on which anything is undone
//   handed-over  somebody else works on this now: stop, undo nothing, repeat nothing
//   stop         tell a person: repeating does not help, and whether money moved is in the problem's text
export function decide(err) {
  const headers = err?.headers ?? {};
  const after = Math.max(1, Number(headers['retry-after']) || 1) * 1000;
  if (!(err instanceof Stripe.errors.StripeError)) throw err; // a bug of the application
  if (err.statusCode === undefined) return { do: 'repeat', after }; // no answer came: the call may have been carried out
  if (err.code?.startsWith('fence_')) {
    const slug = err.code.slice('fence_'.length);
    if (slug === 'fenced' || slug === 'scope-finished') return { do: 'handed-over' };
    if (slug === 'in-flight' || err.statusCode >= 500) return { do: 'repeat', after };
    return { do: 'stop' };
  }
  const outcome = headers['fence-outcome'];
  if (outcome === 'declined') return { do: 'declined' };
  if (outcome === 'unknown') return { do: 'repeat', after }; // the gateway's own 5xx: what became of the call is not found out yet
  if (outcome === 'not-executed' && err.statusCode === 429) return { do: 'repeat', after };
  return { do: 'stop' };
}

// Takes an order's amount (in minor units) until the answer is known or the patience has ended. Then the error that asked for
// a repeat is thrown: that is no failure. The order stays open, and a later charge of it goes on.
export async function charge(stripe, order, { token, patience = 300_000 } = {}) {
  const until = Date.now() + patience;
  for (;;) {
    try {
      return await stripe.paymentIntents.create(
        { amount: order.amount, currency: 'eur', confirm: true, payment_method: order.card },
        fence(`charge:order:${order.id}`, { token }),
      );
    } catch (err) {
      const next = decide(err);
      if (next.do !== 'repeat' || Date.now() + next.after > until) throw err;
      await sleep(next.after);
    }
  }
}
