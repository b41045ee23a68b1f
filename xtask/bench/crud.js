// The journey of compose/testbed/workload.toml for `cargo xtask bench-load`: the same 36 requests
// in the same order, the same bodies with the same random parts, the same headers, and the same
// checks. Written to be quick: bodies are split once, not searched at each request, and requests are named
// by operation, since k6 otherwise keeps metrics for each URL.
import http from 'k6/http';
import { check } from 'k6';
import exec from 'k6/execution';
import { figures } from './figures.js';

export const options = { summaryTrendStats: ['med', 'p(99)'] };

const resources = [
  ['Patient', 'patient'],
  ['Location', 'location'],
  ['Organization', 'organization'],
  ['Practitioner', 'practitioner'],
  ['Encounter', 'encounter'],
  ['Observation', 'observation'],
  ['MedicationRequest', 'medication-request'],
  ['Claim', 'claim'],
  ['ExplanationOfBenefit', 'explanation-of-benefit'],
].map(([type, file]) => ({
  type,
  url: `${__ENV.TARGET}/fhir/${type}`,
  parts: parsed(open(`../../compose/testbed/bodies/${file}.json`)),
  create: named(`create ${type}`),
  read: named(`read ${type}`),
  update: named(`update ${type}`),
  remove: named(`delete ${type}`),
}));
const reversed = resources.slice().reverse();

function named(name) {
  const type = 'application/fhir+json';
  return { headers: { 'content-type': type, accept: type }, tags: { name } };
}

// Text and functions in turn.
function parsed(text) {
  return text.split(/\$\{([^}]*)\}/).map((part, index) => (index % 2 === 0 ? part : template(part)));
}

function template(words) {
  if (words === 'uuid') return () => crypto.randomUUID();
  if (words === 'counter') return () => exec.scenario.iterationInTest;
  if (words.startsWith('id.')) {
    const type = words.slice(3);
    return (ids) => ids[type];
  }
  const range = words.match(/^random\((\d+), (\d+)\)$/);
  if (!range) throw new Error(`crud.js does not know the template \${${words}}`);
  const low = Number(range[1]);
  const width = Number(range[2]) - low + 1;
  return () => low + Math.floor(Math.random() * width);
}

function filled(parts, ids) {
  let text = '';
  for (let index = 0; index < parts.length; index += 1) {
    text += index % 2 === 0 ? parts[index] : parts[index](ids);
  }
  return text;
}

const isCreated = {};
const isRead = {};
for (const { type } of resources) {
  isCreated[type] = { created: (answer) => answer.status === 201 && answer.json('resourceType') === type };
  isRead[type] = { read: (answer) => answer.status === 200 && answer.json('resourceType') === type };
}
const isUpdated = { updated: (answer) => answer.status === 200 && answer.json('meta.versionId') === '2' };
const isDeleted = { deleted: (answer) => answer.status === 204 };

export default function () {
  const ids = {};
  for (const one of resources) {
    const answer = http.post(one.url, filled(one.parts, ids), one.create);
    if (!check(answer, isCreated[one.type])) return;
    ids[one.type] = answer.json('id');
  }
  for (const one of resources) {
    const answer = http.get(`${one.url}/${ids[one.type]}`, one.read);
    if (!check(answer, isRead[one.type])) return;
  }
  for (const one of resources) {
    const answer = http.put(`${one.url}/${ids[one.type]}`, filled(one.parts, ids), one.update);
    if (!check(answer, isUpdated)) return;
  }
  for (const one of reversed) {
    const answer = http.del(`${one.url}/${ids[one.type]}`, null, one.remove);
    if (!check(answer, isDeleted)) return;
  }
}

export const handleSummary = figures;
