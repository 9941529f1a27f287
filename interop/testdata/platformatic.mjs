// Produces with every codec, reads in a group and administers with @platformatic/kafka. Arguments: folder of node_modules, bootstrap address.
import { createRequire } from 'node:module'
import assert from 'node:assert/strict'

const [modules, boot] = process.argv.slice(2)
const { Admin, Producer, Consumer, stringSerializers, stringDeserializers } = createRequire(modules + '/x.js')('@platformatic/kafka')
const common = { clientId: 'interop', bootstrapBrokers: [boot], timeout: 10000 }
const topic = 'platformatic'
const admin = new Admin(common)
await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 })
assert.ok((await admin.listTopics()).includes(topic))

const want = []
for (const [compression, idempotent] of [['none', false], ['gzip', false], ['snappy', false], ['lz4', false], ['none', true]]) {
  const producer = new Producer({ ...common, serializers: stringSerializers, idempotent })
  const messages = Array.from({ length: 100 }, (_, i) => ({ topic, key: `k${i}`, value: `${compression} ${idempotent} ${i}`, headers: { h: 'x' } }))
  await producer.send({ compression, messages })
  want.push(...messages.map(m => m.value))
  await producer.close()
}

const consumer = new Consumer({ ...common, deserializers: stringDeserializers, groupId: 'platformatic-group' })
const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true })
const got = []
for await (const message of stream) {
  assert.equal(message.headers.get('h'), 'x')
  got.push(message.value)
  if (got.length === want.length) break
}
assert.deepEqual(got.sort(), want.sort())
await consumer.close(true)

assert.ok((await admin.listGroups()).has('platformatic-group'))
const described = await admin.describeGroups({ groups: ['platformatic-group'] })
assert.equal(described.get('platformatic-group').state, 'EMPTY')
await admin.deleteGroups({ groups: ['platformatic-group'] })
await admin.deleteTopics({ topics: [topic] })
await admin.close()
console.log('all equal')
