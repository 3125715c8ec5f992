import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * What Kafka's own rates measure. Each line of the input is {"kind": "rate", "simple" or "bucket", "samples": N, "window": MS,
 * "quota": BOUND, "steps": [[MS, AMOUNT], ...]}, where an amount of null only measures; the output has what is measured after each
 * step: a rate and over how many milliseconds, or the tokens.
 */
final class RateDecisions {
    private static final ObjectMapper JSON = new ObjectMapper();

    private RateDecisions() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.append(measured(JSON.readTree(line))).append('\n');
        }
        System.out.writeBytes(output.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static ArrayNode measured(JsonNode asked) {
        MetricConfig config = new MetricConfig()
            .samples(asked.get("samples").intValue())
            .timeWindow(asked.get("window").longValue(), TimeUnit.MILLISECONDS)
            .quota(new Quota(asked.get("quota").doubleValue(), true));
        String kind = asked.get("kind").textValue();
        Rate rate = kind.equals("simple") ? new SimpleRate() : new Rate();
        TokenBucket bucket = new TokenBucket();
        ArrayNode answer = JSON.createArrayNode();
        for (JsonNode step : asked.get("steps")) {
            long now = step.get(0).longValue();
            boolean records = !step.get(1).isNull();
            if (kind.equals("bucket")) {
                if (records) {
                    bucket.record(config, step.get(1).doubleValue(), now);
                }
                answer.add(bucket.measure(config, now));
            } else {
                if (records) {
                    rate.record(config, step.get(1).doubleValue(), now);
                }
                answer.addArray().add(rate.measure(config, now)).add(rate.windowSize(config, now));
            }
        }
        return answer;
    }
}
