// KafkaJS as its users write it: produces a record and reads the topic; prints the values, or [] where it is not let in.
const { Kafka, logLevel } = require('kafkajs')
const given = JSON.parse(require('fs').readFileSync(0))

async function main() {
  const kafka = new Kafka({
    clientId: 'kafkajs',
    brokers: given.brokers,
    ssl: given.ca ? { ca: [given.ca], ...(given.own ? { cert: given.own, key: given.own } : {}) } : false,
    sasl: given.mechanism ? { mechanism: given.mechanism, username: given.username, password: given.password } : undefined,
    logLevel: logLevel.NOTHING,
    retry: { retries: 2 },
  })
  const admin = kafka.admin()
  const producer = kafka.producer()
  try {
    await producer.connect()
  } catch (error) {
    if (/authentication/i.test(`${error.name} ${error.message}`)) return []
    throw error
  }
  await producer.send({ topic: given.topic, messages: [{ value: given.value, partition: 0 }] })
  await producer.disconnect()
  await admin.connect()
  const [{ offset: end }] = await admin.fetchTopicOffsets(given.topic)
  await admin.disconnect()
  const consumer = kafka.consumer({ groupId: `kafkajs-${process.pid}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [given.topic], fromBeginning: true })
  const values = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error))
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value.toString())
        if (Number(message.offset) + 1 >= Number(end)) resolve()
      },
    })
  })
  await consumer.disconnect()
  return values
}

main().then(
  // Written whole first: exit() drops what a pipe has not taken yet.
  (values) => process.stdout.write(JSON.stringify(values), () => process.exit(0)),
  (error) => { console.error(error); process.exit(1) },
)
