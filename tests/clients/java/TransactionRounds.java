import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions and says how long each took: `java … TransactionRounds BOOTSTRAP ID`, then on standard input lines of
 * `TOPIC MILLISECONDS RECORDS SIZE PAUSE_MS`, each answered by a list of milliseconds in JSON. See tests/bench/transactions.py.
 */
final class TransactionRounds {
    private TransactionRounds() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "transactional.id", args[1], "linger.ms", 0);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] told = line.split(" ");
                System.out.println(round(producer, told[0], number(told[1]), number(told[2]), number(told[3]), number(told[4])));
            }
        }
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }

    private static String round(
        KafkaProducer<byte[], byte[]> producer, String topic, int lastsMs, int records, int size, int pauseMs
    ) throws InterruptedException {
        var took = new StringJoiner(", ", "[", "]");
        byte[] payload = new byte[size];
        for (long end = System.nanoTime() + lastsMs * 1_000_000L; took.length() == 2 || System.nanoTime() < end;) {
            long began = System.nanoTime();
            producer.beginTransaction();
            for (int sent = 0; sent < records; sent++) {
                producer.send(new ProducerRecord<>(topic, 0, null, payload));
            }
            producer.commitTransaction();
            took.add(Double.toString((System.nanoTime() - began) / 1e6));
            Thread.sleep(pauseMs);
        }
        return took.toString();
    }
}
