import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * An application of Kafka Streams. A record's value is "group:number"; for each record it writes "count:sum" of its group so far,
 * under the name of the group. So records are sent on by a repartition topic, and the totals are in a store with a changelog.
 *
 * The job in the first line of standard input has application_id, source, target, state_dir and config, which are further settings.
 * It tells each `state` of the client, and each `error` that ended a thread. A second line ends it.
 */
public class Totals {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static synchronized void tell(String event, String name, String value) {
        Map<String, Object> told = new TreeMap<>();
        told.put("event", event);
        told.put(name, value);
        System.out.println(JSON.valueToTree(told));
        System.out.flush();
    }

    private static Properties settings(JsonNode job) {
        var found = new Properties();
        found.put(StreamsConfig.APPLICATION_ID_CONFIG, job.get("application_id").asText());
        found.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.get("bootstrap").asText());
        found.put(StreamsConfig.STATE_DIR_CONFIG, job.get("state_dir").asText());
        found.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        found.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // a result for each record, not for the last of some
        found.put("reconnect.backoff.ms", 10);
        found.put("reconnect.backoff.max.ms", 200);
        found.put("retry.backoff.ms", 20);
        job.get("config").properties().forEach(it -> found.put(it.getKey(), it.getValue().asText()));
        return found;
    }

    private static String add(String value, String total) {
        String[] so = total.split(":");
        long number = Long.parseLong(value.split(":")[1]);
        return (Long.parseLong(so[0]) + 1) + ":" + (Long.parseLong(so[1]) + number);
    }

    private static KafkaStreams totals(JsonNode job) {
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        builder.stream(job.get("source").asText(), Consumed.with(text, text))
            .selectKey((key, value) -> value.split(":")[0])
            .groupByKey(Grouped.<String, String>as("by-group").withKeySerde(text).withValueSerde(text))
            .aggregate(() -> "0:0", (key, value, total) -> add(value, total),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("totals").withKeySerde(text).withValueSerde(text))
            .toStream()
            .to(job.get("target").asText(), Produced.with(text, text));
        return new KafkaStreams(builder.build(), settings(job));
    }

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode job = JSON.readTree(lines.readLine());
        try (KafkaStreams streams = totals(job)) {
            streams.setStateListener((now, before) -> tell("state", "state", now.name()));
            streams.setUncaughtExceptionHandler(error -> {
                tell("error", "error", error + " by " + error.getCause());
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            lines.readLine();
            streams.close(Duration.ofSeconds(60));
        }
        tell("done", "state", "closed");
    }
}
