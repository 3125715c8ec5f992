import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Kafka's own reader and writer of metadata records. Each line of the input is a record: its bytes in hex, or
 * {"type": "TOPIC_RECORD", "version": 0, "data": {...}}. Each line of the output has both forms of it, or {"error": ...}.
 */
final class MetadataRecords {
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;
    private static final ObjectMapper JSON = new ObjectMapper();

    private MetadataRecords() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                ApiMessageAndVersion read = line.startsWith("{") ? fromJson(JSON.readTree(line)) : fromHex(line);
                ObjectNode json = answer.putObject("json");
                json.put("type", MetadataRecordType.fromId(read.message().apiKey()).toString());
                json.put("version", read.version());
                json.set("data", MetadataJsonConverters.writeJson(read.message(), read.version()));
                answer.put("hex", toHex(read));
            } catch (RuntimeException | ReflectiveOperationException error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                answer.removeAll().put("error", cause.toString());
            }
            output.append(answer).append('\n');
        }
        System.out.writeBytes(output.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static ApiMessageAndVersion fromHex(String line) {
        byte[] bytes = HexFormat.of().parseHex(line);
        return SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length);
    }

    private static ApiMessageAndVersion fromJson(JsonNode line) throws ReflectiveOperationException {
        ApiMessage empty = MetadataRecordType.valueOf(line.get("type").textValue()).newMetadataRecord();
        short version = line.get("version").shortValue();
        Class<?> converter = Class.forName(empty.getClass().getName() + "JsonConverter");
        Object message = converter.getMethod("read", JsonNode.class, short.class).invoke(null, line.get("data"), version);
        return new ApiMessageAndVersion((ApiMessage) message, version);
    }

    private static String toHex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
        SERDE.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }
}
