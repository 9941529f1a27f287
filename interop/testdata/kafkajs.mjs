// Produces, reads in a group, commits, seeks and administers with kafkajs. Arguments: folder of node_modules, bootstrap address.
import { createRequire } from 'node:module'
import assert from 'node:assert/strict'

const [modules, boot] = process.argv.slice(2)
const { Kafka, logLevel, CompressionTypes } = createRequire(modules + '/x.js')('kafkajs')
const kafka = new Kafka({ clientId: 'interop', brokers: [boot], logLevel: logLevel.ERROR })
const topic = 'kafkajs'
const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '100000' }] }] })
await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
assert.ok((await admin.listTopics()).includes(topic))
const { resources: [{ configEntries }] } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] })
assert.equal(configEntries.find(e => e.configName === 'retention.ms').configValue, '100000')

const want = new Map() // partition:offset to value
for (const [compression, idempotent] of [[CompressionTypes.None, false], [CompressionTypes.GZIP, false], [CompressionTypes.None, true]]) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined })
  await producer.connect()
  for (let partition = 0; partition < 4; partition++) {
    const messages = Array.from({ length: 50 }, (_, i) => ({ partition, key: `k${i}`, value: `v${compression}${idempotent}${i}`, headers: { h: 'x' } }))
    const [sent] = await producer.send({ topic, compression, messages })
    messages.forEach((m, i) => want.set(`${partition}:${Number(sent.baseOffset) + i}`, m.value))
  }
  await producer.disconnect()
}

async function readAll (groupId, count) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300 })
  const got = new Map()
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const full = new Promise(resolve => {
    consumer.run({ eachMessage: async ({ partition, message }) => {
      got.set(`${partition}:${message.offset}`, message.value.toString())
      if (got.size === count) resolve()
    } })
  })
  await full
  await consumer.disconnect()
  return got
}
assert.deepEqual(await readAll('kafkajs-group', want.size), want)
const sum = offsets => offsets.reduce((n, p) => n + Number(p.offset), 0)
const [{ partitions }] = await admin.fetchOffsets({ groupId: 'kafkajs-group', topics: [topic] })
assert.equal(sum(partitions), want.size)
assert.equal(sum(await admin.fetchTopicOffsets(topic)), want.size)
const { groups: [described] } = await admin.describeGroups(['kafkajs-group'])
assert.equal(described.state, 'Empty')
await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '10' }] })
assert.equal((await admin.fetchTopicOffsets(topic)).find(p => p.partition === 0).low, '10')
await admin.deleteGroups(['kafkajs-group'])
await admin.deleteTopics({ topics: [topic] })
await admin.disconnect()
console.log('all equal')
