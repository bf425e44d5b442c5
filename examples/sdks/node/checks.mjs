// Checks of the example against a sidecar with the sandbox gateway behind it (checks.mjs sidecar), and of what the SDK makes of
// every refusal (checks.mjs refusals). One line per check; the exit code is 1 if one failed. run.sh starts it.
import assert from 'node:assert/strict';
import Stripe from 'stripe';
import { charge, client, decide, fence } from './fence.mjs';

const { SIDECAR, SANDBOX, REFUSALS, STRIPE_KEY } = process.env;

let failed = false;
async function check(name, body) {
  try {
    await body();
    console.log(`ok      node ${name}`);
  } catch (err) {
    failed = true;
    console.log(`FAILED  node ${name}: ${String(err?.message ?? err).split('\n').join(' ')}`);
  }
}

const get = async (url) => (await fetch(url)).json();

function sdk(address) {
  const at = new URL(address);
  return client({ apiKey: STRIPE_KEY, host: at.hostname, port: at.port });
}

// rejected returns the error of a call that must not succeed.
async function rejected(call) {
  const got = await call.then((value) => ({ value }), (err) => ({ err }));
  if (got.err === undefined) assert.fail(`taken for a success: ${JSON.stringify(got.value)}`);
  return got.err;
}

// moved runs body and returns its result; the gateway must have got and executed this many POSTs meanwhile.
async function moved(posts, executed, body) {
  const count = async () => ({
    posts: (await get(`${SANDBOX}/_sandbox/sends`)).filter((s) => s.method === 'POST').length,
    executed: (await get(`${SANDBOX}/_sandbox/ledger`)).length,
  });
  const before = await count();
  const result = await body();
  const after = await count();
  assert.deepEqual(
    { posts: after.posts - before.posts, executed: after.executed - before.executed }, { posts, executed }, 'counted at the gateway');
  return result;
}

async function fault(name, times = 1) {
  const body = JSON.stringify({ fault: name, times, route: 'POST /v1/payment_intents' });
  const resp = await fetch(`${SANDBOX}/_sandbox/faults`, { method: 'POST', body });
  assert.equal(resp.status, 204);
}

async function sidecar() {
  const stripe = sdk(SIDECAR);
  const order = (id, card = 'pm_card_visa') => ({ id: `node-${id}`, amount: 4990, card });
  let paid;
  await check('charges', async () => {
    paid = await moved(1, 1, () => charge(stripe, order(1)));
    assert.equal(paid.object, 'payment_intent');
    assert.equal(paid.status, 'succeeded');
  });
  await check('gets the stored answer to a repeat', async () => {
    const again = await moved(0, 0, () => charge(stripe, order(1)));
    assert.equal(again.id, paid.id);
    assert.equal(again.lastResponse.headers['fence-result'], 'replayed');
  });
  await check('is refused another amount under the key', async () => {
    const err = await moved(0, 0, () => rejected(charge(stripe, { ...order(1), amount: 100 })));
    assert.equal(err.code, 'fence_key-conflict');
    assert.equal(decide(err).do, 'stop');
  });
  await check('sees a decline as a card error', async () => {
    for (const posts of [1, 0]) { // the repeat gets the stored no
      const err = await moved(posts, 0, () => rejected(charge(stripe, order(2, 'pm_card_chargeDeclined'))));
      assert.ok(err instanceof Stripe.errors.StripeCardError, err.constructor.name);
      assert.equal(decide(err).do, 'declined');
    }
  });
  await check('refunds', async () => {
    const refund = await moved(1, 1, () =>
      stripe.refunds.create({ payment_intent: paid.id, amount: 1000 }, fence('refund:order:node-1', { undo: 'none' })));
    assert.equal(refund.object, 'refund');
    assert.equal(refund.amount, 1000);
  });
  await check('lists', async () => {
    const list = await stripe.paymentIntents.list({ limit: 100 });
    assert.ok(list.data.some((intent) => intent.id === paid.id));
  });
  await check('gets the payment although the answer was lost', async () => {
    await fault('lose-fin');
    const intent = await charge(stripe, order(3));
    assert.equal(intent.object, 'payment_intent');
    assert.equal(intent.status, 'succeeded');
    assert.equal(intent.lastResponse.headers['fence-outcome'], 'succeeded');
    const again = await moved(0, 0, () => charge(stripe, order(3)));
    assert.equal(again.id, intent.id);
    assert.equal((await get(`${SANDBOX}/_sandbox/ledger`)).filter((o) => o.id === intent.id).length, 1);
  });
  await check("does not take a load balancer's 503 for a payment", async () => {
    await fault('balancer', 2); // the sidecar asks once more, as nothing stands under the key
    const options = fence('charge:order:node-5');
    options.headers.Prefer = 'wait=0';
    const err = await moved(2, 0, () =>
      rejected(stripe.paymentIntents.create({ amount: 4990, currency: 'eur' }, { ...options, maxNetworkRetries: 0 })));
    assert.equal(err.code, 'fence_in-doubt');
  });
  await check('was charged once for each order', async () => {
    const mine = (await get(`${SANDBOX}/_sandbox/ledger`)).filter((o) => o.kind === 'payment_intents.create' && o.money);
    const keys = mine.map((o) => o.idempotency_key);
    assert.equal(new Set(keys).size, keys.length);
  });
  await check('is told of a hand-over by a token that is not live', async () => {
    const err = await moved(0, 0, () => rejected(charge(stripe, order(4), { token: 'default:order-4#7' })));
    assert.equal(err.code, 'fence_fenced');
    assert.equal(decide(err).do, 'handed-over');
  });
  await check('sends nothing without a call key', async () => {
    const err = await moved(0, 0, () => rejected(stripe.paymentIntents.create({ amount: 1, currency: 'eur' })));
    assert.equal(err.code, 'fence_untagged');
  });
}

// What the SDK may repeat by itself, and what the application does; the rest is for a person.
const repeatable = ['in-flight', 'store-unavailable', 'instance-lease-lost', 'draining'];
const next = {
  'handed-over': ['fenced', 'scope-finished'],
  repeat: [...repeatable, 'in-doubt', 'not-sent', 'breaker-open', 'quarantine', 'unreadable'],
};

async function refusals() {
  const stripe = sdk(REFUSALS);
  const all = await get(`${REFUSALS}/_refusals`);
  assert.ok(all.length >= 25, 'the list of refusals is short');
  await Promise.all(all.map(({ slug, status, keys }) => check(`rejects ${slug}`, async () => {
    for (const key of keys) {
      const err = await rejected(stripe.paymentIntents.create({ amount: 4990, currency: 'eur' }, fence(key)));
      assert.ok(err instanceof Stripe.errors.StripeError, key);
      assert.equal(err.code, `fence_${slug}`, key);
      assert.equal(err.statusCode, status, key);
      assert.equal(err.headers['fence-outcome'], key.split('/')[2], key);
      assert.equal(decide(err).do, Object.keys(next).find((what) => next[what].includes(slug)) ?? 'stop', key);
      const sent = (await get(`${REFUSALS}/_counts`))[key];
      assert.ok(sent === 1 || sent > 1 && repeatable.includes(slug), `${key}: ${sent} requests`);
    }
  })));
  await check('sends every resend under the same call key', async () => {
    const asked = new Set(all.flatMap(({ keys }) => keys));
    assert.deepEqual(Object.keys(await get(`${REFUSALS}/_counts`)).filter((key) => !asked.has(key)), []);
  });
}

await ({ sidecar, refusals })[process.argv[2]]();
// Not by itself: the SDK leaves the answers that it repeated on unread, and their sockets hold the process for its timeout.
process.exit(failed ? 1 : 0);
