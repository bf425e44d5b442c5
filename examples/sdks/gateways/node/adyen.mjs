// Adyen's Node SDK through the sidecar: no option sets the address, so that the SDK's own HTTP client is given another request to
// work with. Headers go with the call.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import adyen from '@adyen/api-library';
import library from '@adyen/api-library/lib/src/httpClient/httpURLConnectionClient.js';
import { KEY, main } from './scenes.mjs';

const { CheckoutAPI, Client, EnvironmentEnum } = adyen;

class ThroughSidecar extends library.default {
  constructor(address) {
    super();
    this.address = address;
  }

  // Instead of https to the endpoint's own host. Errors and answers are read by the SDK as ever.
  createRequest(endpoint, { headers, method = 'POST', params, timeout }) {
    const to = new URL(new URL(endpoint).pathname, this.address);
    to.search = new URLSearchParams(params ?? {}).toString();
    return request(to, { headers, method, timeout });
  }
}

function client(apiKey, address) {
  const config = { apiKey, environment: EnvironmentEnum.TEST, connectionTimeoutMillis: 30_000 };
  return new CheckoutAPI(new Client(config, new ThroughSidecar(address)));
}

await main((address) => {
  const sdk = client(KEY, address);
  return {
    gateway: 'adyen',
    stored: true, // an error is the key's answer, and no payment can be looked up
    hooked: true,

    async pay({ amount, headers, how }) {
      const body = {
        merchantAccount: 'ShopECOM',
        amount: { value: amount, currency: 'EUR' },
        returnUrl: 'https://shop.example/return',
        paymentMethod: { type: how === 'slow' ? 'sepadirectdebit' : 'scheme' },
      };
      if (how === 'decline') body.additionalData = { RequestedTestAcquirerResponseCode: '2' };
      if (!headers['Fence-Key']) body.reference = `order-${amount}`; // the sidecar writes one of its own
      const got = await sdk.PaymentsApi.payments(body, { headers: { ...headers } });
      const states = { Authorised: 'paid', Received: 'pending', Refused: 'declined' };
      return { id: got.pspReference, state: states[got.resultCode] ?? got.resultCode };
    },
    code: (err) => err.errorCode,
    status: (err) => (err.responseBody === undefined ? undefined : err.statusCode),
    // Adyen's word for whether the same key may be used again.
    refused: (err, again) => assert.equal(err.responseHeaders['transient-error'], again ? undefined : 'false'),
  };
});
