import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Drives kafka-clients by the job on standard input (the contract: tests/clients/programs.py). Compiled with the newest, it runs
 * with all since 2.8: what an older one has not is only missed by the steps that call it.
 */
public class Program {
    static final ObjectMapper JSON = new ObjectMapper();
    static final AtomicBoolean STOPPED = new AtomicBoolean();

    /** A step of an `admin` job; returns what is told as its result. */
    interface Step {
        Object run(JsonNode step) throws Exception;
    }

    static synchronized void tell(String event, Object... namesAndValues) {
        Map<String, Object> told = new TreeMap<>();
        told.put("event", event);
        for (int i = 0; i < namesAndValues.length; i += 2) {
            told.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        System.out.println(JSON.valueToTree(told));
        System.out.flush();
    }

    static byte[] raw(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] raw) {
        return raw == null ? null : new String(raw, StandardCharsets.UTF_8);
    }

    static Map<String, Object> config(JsonNode job, Object... namesAndValues) {
        Map<String, Object> found = new TreeMap<>();
        // "controllers:" in front of addresses says that they are those of controllers (KIP-919).
        String bootstrap = job.get("bootstrap").asText();
        boolean direct = bootstrap.startsWith("controllers:");
        found.put(direct ? "bootstrap.controllers" : "bootstrap.servers", bootstrap.replaceFirst("^controllers:", ""));
        found.put("reconnect.backoff.ms", 10);
        found.put("reconnect.backoff.max.ms", 200);
        found.put("retry.backoff.ms", 20);
        Security.into(found, job.path("security"));
        for (int i = 0; i < namesAndValues.length; i += 2) {
            found.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return found;
    }

    /** The error of the protocol, as the tests know it by name. */
    static String named(Throwable error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        return Errors.forException(cause).name() + " " + cause;
    }

    // --- records

    static void produce(JsonNode job) throws Exception {
        boolean idempotent = job.path("idempotent").asBoolean(false);
        Map<String, Object> config = config(job,
            "acks", job.get("acks").asText(),
            "compression.type", job.path("codec").asText("none"),
            "enable.idempotence", idempotent,
            "linger.ms", 5);
        if (!idempotent) {
            config.put("max.in.flight.requests.per.connection", 1);
        }
        int pause = job.path("pause_ms").asInt(0);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            int i = 0;
            for (JsonNode it : job.get("records")) {
                var record = new ProducerRecord<byte[], byte[]>(
                    job.get("topic").asText(),
                    it.has("partition") ? (Integer) it.get("partition").asInt() : null,
                    it.has("timestamp") ? (Long) it.get("timestamp").asLong() : null,
                    raw(it.get("key")),
                    raw(it.get("value")));
                for (JsonNode header : it.path("headers")) {
                    record.headers().add(header.get(0).asText(), raw(header.get(1)));
                }
                int number = i++;
                producer.send(record, (where, error) -> {
                    if (error != null) {
                        tell("fail", "i", number, "error", named(error));
                    } else {
                        tell("ack", "i", number, "partition", where.partition(), "offset", where.offset());
                    }
                });
                if (pause > 0) {
                    Thread.sleep(pause);
                }
            }
            producer.flush();
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void show(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        record.headers().forEach(it -> {
            List<String> pair = new ArrayList<>();
            pair.add(it.key());
            pair.add(text(it.value()));
            headers.add(pair);
        });
        tell("record", "partition", record.partition(), "offset", record.offset(), "key", text(record.key()),
            "value", text(record.value()), "headers", headers, "timestamp", record.timestamp());
    }

    static void read(JsonNode job) {
        try (var consumer = consumer(config(job))) {
            var where = new TopicPartition(job.get("topic").asText(), job.get("partition").asInt());
            consumer.assign(List.of(where));
            if (job.has("time_ms")) {
                consumer.seek(where, consumer.offsetsForTimes(Map.of(where, job.get("time_ms").asLong())).get(where).offset());
            } else {
                consumer.seek(where, job.path("offset").asLong(0));
            }
            int wanted = job.get("count").asInt();
            while (wanted > 0) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (wanted-- > 0) {
                        show(record);
                    }
                }
            }
        }
    }

    static void group(JsonNode job) {
        Map<String, Object> config = config(job, "group.id", job.get("group").asText());
        String protocol = job.get("protocol").asText();
        if (protocol.equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("group.protocol", "classic");
            config.put("partition.assignment.strategy", protocol.equals("cooperative")
                ? "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
                : "org.apache.kafka.clients.consumer.RangeAssignor");
            config.put("session.timeout.ms", job.get("session_ms").asInt());
            config.put("heartbeat.interval.ms", 200);
        }
        if (job.has("instance")) {
            config.put("group.instance.id", job.get("instance").asText());
        }
        boolean read = false;
        try (var consumer = consumer(config)) {
            consumer.subscribe(List.of(job.get("topic").asText()), new ConsumerRebalanceListener() {
                void moved(String event, Collection<TopicPartition> partitions) {
                    tell(event, "partitions", partitions.stream().map(TopicPartition::partition).toList());
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    moved("assigned", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    moved("revoked", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    moved("lost", partitions);
                }
            });
            while (!STOPPED.get()) {
                for (var record : consumer.poll(Duration.ofMillis(50))) {
                    show(record);
                    read = true;
                }
            }
            if (read) {
                consumer.commitSync();
            }
        }
    }

    // --- administration

    static ConfigResource topicOf(JsonNode step) {
        return new ConfigResource(ConfigResource.Type.TOPIC, step.get("topic").asText());
    }

    /** By the method of this client's version: `all` until 3.0, `allTopicNames` since 3.1. */
    @SuppressWarnings("unchecked")
    static Map<String, TopicDescription> described(DescribeTopicsResult found) throws Exception {
        try {
            return found.allTopicNames().get();
        } catch (NoSuchMethodError old) {
            return ((KafkaFuture<Map<String, TopicDescription>>) DescribeTopicsResult.class.getMethod("all").invoke(found)).get();
        }
    }

    static Map<String, Step> steps(Admin admin) {
        Map<String, Step> steps = new TreeMap<>();
        steps.put("create_topic", it -> {
            Map<String, String> configs = new TreeMap<>();
            it.path("config").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
            var topic = new NewTopic(
                it.get("topic").asText(), it.get("partitions").asInt(), (short) it.get("replication_factor").asInt());
            return admin.createTopics(List.of(topic.configs(configs))).all().get();
        });
        steps.put("delete_topic", it -> admin.deleteTopics(List.of(it.get("topic").asText())).all().get());
        steps.put("list_topics", it -> admin.listTopics().names().get().stream().sorted().toList());
        steps.put("describe_topic", it -> {
            String name = it.get("topic").asText();
            var found = described(admin.describeTopics(List.of(name))).get(name);
            return Map.of("partitions", found.partitions().size(), "replicas", found.partitions().get(0).replicas().size());
        });
        steps.put("describe_cluster", it -> {
            var found = admin.describeCluster();
            return Map.of(
                "brokers", found.nodes().get().stream().map(node -> node.id()).toList(), "cluster_id", found.clusterId().get());
        });
        steps.put("create_partitions", it -> admin.createPartitions(
            Map.of(it.get("topic").asText(), NewPartitions.increaseTo(it.get("partitions").asInt()))).all().get());
        steps.put("describe_configs", it -> {
            Map<String, Object> told = new TreeMap<>();
            for (ConfigEntry entry : admin.describeConfigs(List.of(topicOf(it))).all().get().get(topicOf(it)).entries()) {
                boolean own = entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG;
                told.put(entry.name(), Map.of("value", entry.value(), "default", !own));
            }
            return told;
        });
        steps.put("alter_configs", it -> {
            List<AlterConfigOp> ops = new ArrayList<>();
            it.get("config").properties().forEach(entry -> ops.add(
                new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
            return admin.incrementalAlterConfigs(Map.of(topicOf(it), ops)).all().get();
        });
        steps.put("delete_records", it -> {
            var where = new TopicPartition(it.get("topic").asText(), it.get("partition").asInt());
            var until = RecordsToDelete.beforeOffset(it.get("offset").asLong());
            return admin.deleteRecords(Map.of(where, until)).lowWatermarks().get(where).get().lowWatermark();
        });
        steps.put("list_offset", it -> {
            var where = new TopicPartition(it.get("topic").asText(), it.get("partition").asInt());
            String at = it.get("at").asText();
            OffsetSpec spec = switch (at) {
                case "earliest" -> OffsetSpec.earliest();
                case "latest" -> OffsetSpec.latest();
                case "max" -> OffsetSpec.maxTimestamp();
                default -> OffsetSpec.forTimestamp(Long.parseLong(at));
            };
            return admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset();
        });
        steps.put("list_groups", it -> admin.listGroups().all().get().stream().map(group -> group.groupId()).toList());
        steps.put("describe_group", it -> {
            String group = it.get("group").asText();
            var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return Map.of("state", found.groupState().toString(), "members", found.members().size(), "type", "consumer");
        });
        steps.put("committed", it -> {
            Map<String, Long> told = new TreeMap<>();
            admin.listConsumerGroupOffsets(it.get("group").asText()).partitionsToOffsetAndMetadata().get().forEach((tp, at) -> {
                if (tp.topic().equals(it.get("topic").asText())) {
                    told.put(String.valueOf(tp.partition()), at.offset());
                }
            });
            return told;
        });
        steps.put("delete_group", it -> admin.deleteConsumerGroups(List.of(it.get("group").asText())).all().get());
        return steps;
    }

    static void admin(JsonNode job) {
        try (Admin admin = Admin.create(config(job))) {
            Map<String, Step> steps = steps(admin);
            for (JsonNode step : job.get("steps")) {
                String wanted = step.get("do").asText();
                if (!steps.containsKey(wanted)) {
                    steps.putAll(Breadth.steps(admin)); // older clients have not all that it names
                }
                try {
                    Object result = Optional.ofNullable(steps.get(wanted)).orElseThrow().run(step);
                    tell("result", "do", wanted, "result", result);
                } catch (Exception error) {
                    tell("result", "do", wanted, "error", named(error));
                }
            }
        }
    }

    /** Loads the classes of all clients, for the archive of classes with which this program starts faster. */
    @SuppressWarnings("deprecation") // there since 2.0, its successor only since 4.1
    static void warm(JsonNode job) {
        var quick = Duration.ZERO;
        new KafkaProducer<>(config(job), new ByteArraySerializer(), new ByteArraySerializer()).close(quick);
        for (String protocol : List.of("classic", "consumer")) {
            var consumer = consumer(config(job, "group.id", "warm", "group.protocol", protocol));
            consumer.subscribe(List.of("warm"));
            consumer.poll(quick);
            consumer.close(quick);
        }
        Admin.create(config(job)).close(quick);
    }

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode job = JSON.readTree(lines.readLine());
        Thread listener = new Thread(() -> {
            try {
                lines.readLine();
            } catch (java.io.IOException gone) {
                // standard input is closed: whoever started this is gone
            }
            STOPPED.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        switch (job.get("op").asText()) {
            case "produce" -> produce(job);
            case "read" -> read(job);
            case "group" -> group(job);
            case "admin" -> admin(job);
            case "transact" -> Transactions.run(job);
            case "session" -> Security.session(job, config(job), STOPPED);
            case "warm" -> warm(job);
            default -> throw new IllegalArgumentException(job.get("op").asText());
        }
        tell("done");
    }
}
