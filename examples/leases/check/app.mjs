// An application under check: does what its standard input says, one line each, and answers each with one line.
import readline from 'node:readline';
import { Keeper, Refused } from './keeper.mjs';

const { LEASES, PAY, STRIPE_KEY } = process.env;
let keeper;
let told = 0;

const commands = {
  async acquire(scope) {
    told = 0;
    keeper = await Keeper.acquire(scope, { sidecar: LEASES, holder: 'node', onLost: () => { told += 1; } });
    return keeper.token();
  },
  async charge(key, amount) {
    const answer = await fetch(`${PAY}/v1/payment_intents`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${STRIPE_KEY}`, 'Fence-Key': key, 'Fence-Token': keeper.token() },
      body: new URLSearchParams({ amount, currency: 'eur', confirm: 'true', payment_method: 'pm_card_visa' }),
    });
    const fenced = (await answer.text()).includes('/problems/fenced') ? 'fenced' : '';
    return `${answer.status} ${answer.headers.get('fence-lease')} ${fenced}`.trim();
  },
  release: () => keeper.release().then(() => 'done'),
  finish: () => keeper.finish().then(() => 'done'),
  held: () => keeper.held(),
  lost: () => keeper.lost && told === 1,
  cancelled: () => keeper.cancelled,
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [what, ...args] = line.split(' ');
  try {
    console.log(String(await commands[what](...args)));
  } catch (err) {
    console.log(err instanceof Refused ? `refused ${err.slug}` : `error ${err}`);
  }
}
process.exit(0);
