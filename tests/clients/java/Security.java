import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** How a job says to log in, and the job that sends a record after the other there. */
class Security {
    private static final String MODULES = "org.apache.kafka.common.security.";

    static void into(Map<String, Object> config, JsonNode given) {
        if (given.isMissingNode()) {
            return;
        }
        config.put("security.protocol", given.get("protocol").asText());
        config.put("ssl.truststore.type", "PEM");
        config.put("ssl.truststore.location", given.get("ca").asText());
        if (given.has("certificate")) { // a file with the key in it as well
            config.put("ssl.keystore.type", "PEM");
            config.put("ssl.keystore.location", given.get("certificate").asText());
        }
        if (given.has("mechanism")) {
            config.put("sasl.mechanism", given.get("mechanism").asText());
            config.put("sasl.jaas.config", login(given));
        }
    }

    private static String login(JsonNode given) {
        String mechanism = given.get("mechanism").asText();
        String user = given.get("username").asText();
        if (mechanism.equals("OAUTHBEARER")) {
            return "%soauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"%s\" unsecuredLoginLifetimeSeconds=\"%d\";"
                .formatted(MODULES, user, given.get("token_s").asLong());
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return "%s%s required username=\"%s\" password=\"%s\";".formatted(MODULES, module, user, given.get("password").asText());
    }

    static void session(JsonNode job, Map<String, Object> config, AtomicBoolean stopped) throws Exception {
        config.put("max.block.ms", 20_000);
        config.put("delivery.timeout.ms", 20_000);
        config.put("request.timeout.ms", 10_000);
        byte[] value = "v".getBytes(StandardCharsets.UTF_8);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; !stopped.get(); i++) {
                try {
                    producer.send(new ProducerRecord<>(job.get("topic").asText(), value)).get();
                    Program.tell("ack", "i", i);
                } catch (Exception error) {
                    Program.tell("fail", "i", i, "error", Program.named(error));
                }
                Thread.sleep(job.get("pause_ms").asInt());
            }
        }
    }
}
