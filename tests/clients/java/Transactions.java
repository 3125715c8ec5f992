import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The steps of the job `transact` (the contract: tests/clients/programs.py). */
class Transactions {
    private final JsonNode job;
    private final KafkaProducer<byte[], byte[]> producer;

    Transactions(JsonNode job, KafkaProducer<byte[], byte[]> producer) {
        this.job = job;
        this.producer = producer;
    }

    static void run(JsonNode job) throws Exception {
        Map<String, Object> config = Program.config(job,
            "transactional.id", job.get("transactional_id").asText(),
            "transaction.timeout.ms", job.path("timeout_ms").asInt(60_000));
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            var transactions = new Transactions(job, producer);
            for (JsonNode step : job.get("steps")) {
                String wanted = step.get("do").asText();
                try {
                    transactions.step(wanted, step);
                    Program.tell("result", "do", wanted, "result", null);
                } catch (Exception error) {
                    Program.tell("result", "do", wanted, "error", Program.named(error));
                }
            }
        }
    }

    private void step(String wanted, JsonNode step) throws Exception {
        switch (wanted) {
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "send" -> {
                for (JsonNode it : step.get("records")) {
                    send(it.get("partition").asInt(), Program.raw(it.get("key")), Program.raw(it.get("value")));
                }
                producer.flush();
            }
            case "copy" -> copy(step);
            case "wait" -> {
                while (!Program.STOPPED.get()) {
                    Thread.sleep(10);
                }
            }
            default -> throw new IllegalArgumentException(wanted);
        }
    }

    private void send(int partition, byte[] key, byte[] value) {
        producer.send(new ProducerRecord<>(job.get("topic").asText(), partition, key, value));
    }

    private void copy(JsonNode step) {
        Map<String, Object> config = Program.config(job, "group.id", job.get("group").asText());
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        config.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, step.get("count").asInt());
        try (var consumer = Program.consumer(config)) {
            consumer.subscribe(List.of(step.get("source").asText()));
            int left = step.get("count").asInt();
            while (left > 0) {
                for (var record : consumer.poll(Duration.ofMillis(50))) {
                    send(0, record.key(), record.value());
                    left--;
                }
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new TreeMap<>(
                (one, other) -> Integer.compare(one.partition(), other.partition()));
            consumer.assignment().forEach(it -> offsets.put(it, new OffsetAndMetadata(consumer.position(it))));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        }
    }
}
