// Drives one KafkaJS client by the job that stands in the first line of standard input, and tells what happens in lines of JSON.
// The contract is that of tests/clients/programs.py. NODE_PATH says where the packages are.
'use strict'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const fs = require('node:fs')
const readline = require('node:readline')

// KafkaJS brings gzip; the others are left to packages of the user's choice.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => {
  const lz4 = require('lz4js')
  return {
    compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  }
}
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  const simple = new Promise((resolve) => require('zstd-codec').ZstdCodec.run((zstd) => resolve(new zstd.Simple())))
  return {
    compress: async (encoder) => Buffer.from((await simple).compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from((await simple).decompress(buffer)),
  }
}

const tell = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const name = (error) =>
  error.type ?? error.originalError?.type ?? error.errors?.[0]?.type ?? error.groups?.[0]?.error?.type ?? error.partitions?.[0]?.error?.type ?? error.cause?.partitions?.[0]?.error?.type ?? error.cause?.type ?? error.message
const text = (raw) => (raw === null || raw === undefined ? null : raw.toString())
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// One that nobody has signed.
const token = ({ username, token_s: seconds }) => {
  const now = Date.now() / 1000
  const parts = [{ alg: 'none' }, { sub: username, iat: now, exp: now + seconds }]
  return parts.map((it) => Buffer.from(JSON.stringify(it)).toString('base64url')).join('.') + '.'
}

const secured = ({ security: given }) => {
  if (given === undefined) return {}
  const text = (path) => path && fs.readFileSync(path, 'utf8')
  const found = { ssl: { ca: [text(given.ca)], cert: text(given.certificate), key: text(given.key) } }
  if (given.mechanism === 'OAUTHBEARER') {
    found.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token(given) }) }
  } else if (given.mechanism !== undefined) {
    found.sasl = { mechanism: given.mechanism.toLowerCase(), username: given.username, password: given.password }
  }
  return found
}

const client = (job, retries = 60) =>
  new Kafka({
    brokers: job.bootstrap.split(','),
    logLevel: logLevel.WARN,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries },
    reauthenticationThreshold: 250, // of the session's end; ten seconds are its default, and brokers allow one in a second
    ...secured(job),
  })

// A record after the other until the word to stop comes.
const session = async (job, stopped) => {
  let going = true
  stopped.then(() => (going = false))
  const producer = client(job, 5).producer({ createPartitioner: Partitioners.DefaultPartitioner })
  for (let i = 0; going; i++) {
    try {
      if (i === 0) await producer.connect()
      await producer.send({ topic: job.topic, acks: -1, messages: [{ value: 'v' }] })
      tell({ event: 'ack', i })
    } catch (error) {
      tell({ event: 'fail', i, error: `${error.name} ${name(error)} ${error.message}` })
    }
    await pause(job.pause_ms)
  }
  await producer.disconnect()
}

const message = (record) => {
  const headers = {}
  for (const [key, value] of record.headers ?? []) {
    headers[key] = key in headers ? [headers[key], value].flat() : value
  }
  const found = { key: record.key ?? null, value: record.value ?? null, headers }
  if (record.partition !== undefined) found.partition = record.partition
  if (record.timestamp) found.timestamp = String(record.timestamp)
  return found
}

// Where every message belongs, which an answer does not tell: each keeps the partition that was chosen first.
const homes = new WeakMap()
const remembering = () => {
  const choose = Partitioners.DefaultPartitioner()
  return (given) => {
    if (!homes.has(given.message)) homes.set(given.message, choose(given))
    return homes.get(given.message)
  }
}

// A `send` may succeed although nobody has acknowledged a partition, which its answer lacks then (README.md): that part is sent again.
// It has the sequence of the first time, so an idempotent one is not there twice when a broker has it already.
const acknowledged = async (producer, { messages, ...send }) => {
  const told = []
  const missing = () => messages.filter((it) => !told.some((one) => one.partition === homes.get(it)))
  for (let tries = 0; tries < 20; tries++) {
    const left = missing()
    if (left.length === 0) return told
    told.push(...(await producer.send({ ...send, messages: left })))
    if (send.acks === 0) return told // nobody answers
  }
  const left = missing()
  if (left.length > 0) throw new Error(`nobody has acknowledged partition ${homes.get(left[0])}`)
  return told
}

// A batch at a time: KafkaJS keeps the order of what is in one `send`, and of sends that are awaited.
const produce = async (job) => {
  const producer = client(job).producer({
    idempotent: job.idempotent ?? false,
    maxInFlightRequests: 1,
    createPartitioner: remembering,
  })
  await producer.connect()
  const codec = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }[job.codec ?? 'none']
  const acks = { 0: 0, 1: 1, all: -1 }[job.acks]
  const size = job.pause_ms ? 10 : 100
  for (let start = 0; start < job.records.length; start += size) {
    const records = job.records.slice(start, start + size)
    const send = { topic: job.topic, acks, compression: CompressionTypes[codec], messages: records.map(message) }
    try {
      const told = await acknowledged(producer, send)
      records.forEach((record, n) => {
        const where = told.find((it) => it.partition === record.partition)
        tell({ event: 'ack', i: start + n, ...(where && { partition: where.partition, offset: Number(where.baseOffset) + n }) })
      })
    } catch (error) {
      records.forEach((_, n) => tell({ event: 'fail', i: start + n, error: name(error) }))
    }
    if (job.pause_ms) await pause(job.pause_ms * size)
  }
  await producer.disconnect()
}

// One `send` is one request; a transaction is an object of its own.
const transact = async (job, stopped) => {
  const producer = client(job).producer({
    transactionalId: job.transactional_id,
    transactionTimeout: job.timeout_ms ?? 60000,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  let open
  const copy = async ({ source, count }) => {
    const consumer = client(job).consumer({ groupId: job.group, maxWaitTimeInMs: 100, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topic: source, topics: [source], fromBeginning: true }) // by one name or the other, since 1.0
    const found = []
    await new Promise((resolve) =>
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ message: it }) => {
          if (found.length < count) found.push(it)
          if (found.length >= count) resolve()
        },
      }),
    )
    await open.send({ topic: job.topic, messages: found.map((it) => ({ key: it.key, value: it.value, partition: 0 })) })
    const offset = String(Number(found[found.length - 1].offset) + 1)
    await open.sendOffsets({ consumerGroupId: job.group, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }] })
    await consumer.disconnect()
  }
  const steps = {
    begin: async () => {
      open = await producer.transaction()
    },
    send: async ({ records }) => {
      const told = await open.send({ topic: job.topic, messages: records.map(message) })
      const missing = records.filter((it) => !told.some((one) => one.partition === it.partition))
      if (missing.length > 0) throw new Error(`nobody has acknowledged partition ${missing[0].partition}`)
    },
    copy,
    commit: () => open.commit(),
    abort: () => open.abort(),
    wait: () => stopped,
  }
  for (const step of job.steps) {
    try {
      await steps[step.do](step)
      tell({ event: 'result', do: step.do, result: null })
    } catch (error) {
      tell({ event: 'result', do: step.do, error: name(error) })
    }
  }
  await producer.disconnect()
}

const show = (partition, it) => {
  const headers = Object.entries(it.headers ?? {}).flatMap(([key, value]) => [value].flat().map((one) => [key, text(one)]))
  const { offset, timestamp } = it
  tell({ event: 'record', partition, offset: Number(offset), key: text(it.key), value: text(it.value), headers, timestamp: Number(timestamp) })
}

// KafkaJS reads in groups only: this is a group of one, which seeks and never commits.
const read = async (job) => {
  const kafka = client(job)
  let offset = job.offset ?? 0
  if (job.time_ms !== undefined) {
    const admin = kafka.admin()
    await admin.connect()
    const found = await admin.fetchTopicOffsetsByTimestamp(job.topic, job.time_ms)
    offset = Number(found.find((it) => it.partition === job.partition).offset)
    await admin.disconnect()
  }
  const consumer = kafka.consumer({ groupId: `read-${job.topic}-${process.pid}`, maxWaitTimeInMs: 100, retry: { retries: 60 } })
  await consumer.connect()
  await consumer.subscribe({ topic: job.topic, topics: [job.topic], fromBeginning: true }) // by one name or the other, since 1.0
  let seen = 0
  await new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message: it }) => {
        if (partition !== job.partition || Number(it.offset) < offset) return
        if (seen++ < job.count) show(partition, it)
        if (seen >= job.count) resolve()
      },
    })
    consumer.seek({ topic: job.topic, partition: job.partition, offset: String(offset) })
  })
  await consumer.disconnect()
}

const group = async (job, stopped) => {
  const consumer = client(job).consumer({
    groupId: job.group,
    sessionTimeout: job.session_ms ?? 30000,
    heartbeatInterval: 200,
    maxWaitTimeInMs: 100,
    rebalanceTimeout: 20000,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 8 }, // then it starts anew: it holds on to a broker that is dead
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell({ event: 'assigned', incremental: false, partitions: payload.memberAssignment[job.topic] ?? [] }),
  )
  consumer.on(consumer.events.CRASH, ({ payload }) => tell({ event: 'warning', error: name(payload.error) }))
  await consumer.connect()
  await consumer.subscribe({ topic: job.topic, topics: [job.topic], fromBeginning: true }) // by one name or the other, since 1.0
  const next = new Map()
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message: it, heartbeat }) => {
      show(partition, it)
      next.set(partition, String(Number(it.offset) + 1))
      await heartbeat()
    },
  })
  await stopped
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic: job.topic, partition, offset })))
  await consumer.disconnect()
}

const STEPS = {
  create_topic: async (admin, { topic, partitions, replication_factor, config }) => {
    const configEntries = Object.entries(config ?? {}).map(([key, value]) => ({ name: key, value }))
    const made = await admin.createTopics({
      waitForLeaders: false,
      topics: [{ topic, numPartitions: partitions, replicationFactor: replication_factor, configEntries }],
    })
    if (!made) throw new Error('TOPIC_ALREADY_EXISTS') // KafkaJS tells that by `false`
  },
  list_topics: (admin) => admin.listTopics(),
  describe_topic: async (admin, { topic }) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return { partitions: topics[0].partitions.length, replicas: topics[0].partitions[0].replicas.length }
  },
  delete_topic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  describe_cluster: async (admin) => {
    const { brokers, clusterId } = await admin.describeCluster()
    return { brokers: brokers.map((it) => it.nodeId), cluster_id: clusterId }
  },
  create_partitions: (admin, { topic, partitions }) => admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),
  describe_configs: async (admin, { topic }) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const { resources: found } = await admin.describeConfigs({ resources, includeSynonyms: false })
    return Object.fromEntries(
      found[0].configEntries.map((it) => [it.configName, { value: it.configValue, default: it.configSource !== 1 }]),
    )
  },
  alter_configs: async (admin, { topic, config }) => {
    const configEntries = Object.entries(config).map(([key, value]) => ({ name: key, value }))
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
  },
  delete_records: async (admin, { topic, partition, offset }) => {
    await admin.fetchTopicOffsets(topic) // without it: "Topic metadata not loaded"
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
  },
  list_offset: async (admin, { topic, partition, at }) => {
    const timed = at !== 'earliest' && at !== 'latest'
    const found = timed ? await admin.fetchTopicOffsetsByTimestamp(topic, Number(at)) : await admin.fetchTopicOffsets(topic)
    const one = found.find((it) => it.partition === partition)
    return Number(timed ? one.offset : at === 'earliest' ? one.low : one.high)
  },
  list_groups: async (admin) => (await admin.listGroups()).groups.map((it) => it.groupId),
  describe_group: async (admin, { group }) => {
    const { groups } = await admin.describeGroups([group])
    return { state: groups[0].state, members: groups[0].members.length, type: groups[0].protocolType }
  },
  committed: async (admin, { group, topic }) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Object.fromEntries(found.partitions.map((it) => [it.partition, Number(it.offset)]))
  },
  delete_group: async (admin, { group }) => {
    await admin.deleteGroups([group])
  },
}

const administer = async (job) => {
  const admin = new Kafka({ brokers: job.bootstrap.split(','), logLevel: logLevel.NOTHING, ...secured(job) }).admin({ retry: { retries: 3, initialRetryTime: 50, maxRetryTime: 200 } })
  await admin.connect()
  for (const step of job.steps) {
    try {
      const result = await STEPS[step.do](admin, step)
      tell({ event: 'result', do: step.do, result: result ?? null })
    } catch (error) {
      tell({ event: 'result', do: step.do, error: name(error) })
    }
  }
  await admin.disconnect()
}

const main = async () => {
  const lines = readline.createInterface({ input: process.stdin })
  let end
  const stopped = new Promise((resolve) => (end = resolve))
  const job = await new Promise((resolve) => {
    let first = true
    lines.on('line', (line) => {
      if (!first) return end()
      first = false
      return resolve(JSON.parse(line))
    })
    lines.on('close', () => end())
  })
  await { produce, read, group, admin: administer, transact, session }[job.op](job, stopped)
  tell({ event: 'done' })
  lines.close()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
