// Iterations that arrive at a fixed rate, each a write and a read of it.
import http from 'k6/http';
import { check } from 'k6';

export const options = {
  scenarios: {
    orders: {
      executor: 'constant-arrival-rate',
      rate: 25,
      timeUnit: '1s',
      duration: '4s',
      preAllocatedVUs: 10,
      maxVUs: 20,
    },
  },
};

const params = { headers: { 'Content-Type': 'application/fhir+json' } };

export default function () {
  const order = { resourceType: 'MedicationRequest', status: 'active', intent: 'order' };
  const created = http.post(`${__ENV.BASE_URL}/fhir/MedicationRequest`, JSON.stringify(order), params);
  check(created, { created: (r) => r.status === 201 });
  const read = http.get(http.url`${__ENV.BASE_URL}/fhir/MedicationRequest/${created.json('id')}`);
  check(read, { read: (r) => r.status === 200 && r.json('status') === 'active' });
}
