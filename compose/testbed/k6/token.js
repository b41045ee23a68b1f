// A session from set-up, sent with every request, and given back at the end.
import http from 'k6/http';
import { check, fail, group, sleep } from 'k6';

const BASE_URL = __ENV.BASE_URL;
const json = { 'Content-Type': 'application/fhir+json' };

export const options = {
  vus: 2,
  duration: '3s',
  thresholds: { 'checks{group:::setup}': ['rate==1'] },
};

export function setup() {
  const session = JSON.stringify({ resourceType: 'Encounter', status: 'in-progress' });
  let token;
  for (let attempt = 0; attempt < 5; attempt++) {
    const res = http.post(`${BASE_URL}/fhir/Encounter`, session, { headers: json });
    check(res, { 'session is open': (r) => r.status === 201 });
    token = res.json('id');
  }
  if (!token) fail('no session');
  sleep(1);
  return { token };
}

export default function (data) {
  const headers = Object.assign({ Authorization: `Bearer ${data.token}` }, json);
  // A group of the user's own with the name of k6's.
  group('setup', () => {
    const body = JSON.stringify({
      resourceType: 'Observation',
      status: 'final',
      subject: { reference: `Encounter/${data.token}` },
    });
    const res = http.post(`${BASE_URL}/fhir/Observation`, body, { headers });
    check(res, { 'is noted': (r) => r.status === 201 });
  });
  sleep(0.01);
}

export function teardown(data) {
  http.del(`${BASE_URL}/fhir/Encounter/${data.token}`, null, { headers: json });
}
