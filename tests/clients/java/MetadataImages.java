import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Kafka's own metadata image of a log. Each line of the input is a batch, {"base": OFFSET, "records": ["HEX", ...]}; the output is
 * the records of a snapshot of the image after all of them, a line each, as the dump tool prints them.
 */
final class MetadataImages {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static MetadataImage image = MetadataImage.EMPTY;

    private MetadataImages() {
    }

    public static void main(String[] args) throws Exception {
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(),
            Time.SYSTEM,
            (message, cause) -> new IllegalStateException(message, cause),
            (delta, next, manifest) -> image = next,
            (type, name) -> true);
        loader.resetToImage(image);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode batch = JSON.readTree(line);
            List<ApiMessageAndVersion> records = new ArrayList<>();
            for (JsonNode hex : batch.get("records")) {
                byte[] bytes = HexFormat.of().parseHex(hex.textValue());
                records.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length));
            }
            loader.loadBatch(Batch.data(batch.get("base").longValue(), 1, 0L, 100, records), LeaderAndEpoch.UNKNOWN);
            // Each by itself: what an aborted transaction held would be published by one that begins before the next of these.
            loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        StringBuilder output = new StringBuilder();
        for (ApiMessageAndVersion written : writer.records()) {
            ObjectNode json = JSON.createObjectNode();
            json.put("type", MetadataRecordType.fromId(written.message().apiKey()).toString());
            json.put("version", written.version());
            json.set("data", MetadataJsonConverters.writeJson(written.message(), written.version()));
            output.append(json).append('\n');
        }
        System.out.writeBytes(output.toString().getBytes(StandardCharsets.UTF_8));
    }
}
