// Constant users, groups and checks: a front desk that looks patients up and adds new ones.
import http from 'k6/http';
import { check, group, sleep } from 'k6';

const BASE_URL = __ENV.BASE_URL || 'http://localhost:8080';
const json = { headers: { 'Content-Type': 'application/fhir+json' } };

export const options = {
  vus: 3,
  duration: '4s',
};

export default function () {
  let id;
  group('admission', () => {
    const patient = { resourceType: 'Patient', name: [{ family: `Load${__VU}`, given: ['A'] }] };
    const res = http.post(`${BASE_URL}/fhir/Patient`, JSON.stringify(patient), json);
    check(res, {
      'is created': (r) => r.status === 201,
      'has an id': (r) => r.json('id') !== undefined,
    });
    id = res.json('id');
  });

  group('look-up', () => {
    const read = http.get(`${BASE_URL}/fhir/Patient/${id}`, { tags: { name: 'read patient' } });
    check(read, { 'is the same': (r) => r.json('id') === id });
    const found = http.get(`${BASE_URL}/fhir/Patient?name=load${__VU}`, { tags: { name: 'search' } });
    check(found, { 'is found': (r) => r.json('total') > 0 });
    // Nobody has this one.
    const missing = http.get(`${BASE_URL}/fhir/Patient/nobody`);
    check(missing, { 'is there': (r) => r.status === 200 });
  });

  sleep(0.05);
}
