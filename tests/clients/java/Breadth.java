import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.ToIntFunction;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the Java AdminClient alone can ask for: further steps of an `admin` job. */
class Breadth {
    static List<Integer> ids(java.util.Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    static TopicPartition partition(JsonNode step) {
        return new TopicPartition(step.get("topic").asText(), step.path("partition").asInt(0));
    }

    static Map<String, Program.Step> steps(Admin admin) {
        Map<String, Program.Step> steps = new TreeMap<>();
        topics(steps, admin);
        cluster(steps, admin);
        return steps;
    }

    private static void topics(Map<String, Program.Step> steps, Admin admin) {
        steps.put("layout", it -> { // DescribeTopicPartitions, in pages of two partitions
            String name = it.get("topic").asText();
            var options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
            var found = admin.describeTopics(List.of(name), options).allTopicNames().get().get(name);
            List<Object> told = new ArrayList<>();
            for (var partition : found.partitions()) {
                told.add(Map.of(
                    "leader", Optional.ofNullable(partition.leader()).map(Node::id).orElse(-1),
                    "replicas", ids(partition.replicas()),
                    "isr", ids(partition.isr())));
            }
            return told;
        });
        steps.put("describe_producers", it -> {
            var found = admin.describeProducers(List.of(partition(it))).partitionResult(partition(it)).get();
            return found.activeProducers().stream().map(producer -> producer.lastSequence()).toList();
        });
        steps.put("elect", it -> {
            var type = it.get("type").asText().equals("unclean") ? ElectionType.UNCLEAN : ElectionType.PREFERRED;
            Map<String, String> told = new TreeMap<>();
            admin.electLeaders(type, Set.of(partition(it))).partitions().get().forEach(
                (where, error) -> told.put(where.toString(), error.map(Program::named).orElse("elected")));
            return told;
        });
        steps.put("reassign", it -> {
            List<Integer> replicas = new ArrayList<>();
            it.get("replicas").forEach(replica -> replicas.add(replica.asInt()));
            var target = replicas.isEmpty()
                ? Optional.<NewPartitionReassignment>empty()
                : Optional.of(new NewPartitionReassignment(replicas));
            return admin.alterPartitionReassignments(Map.of(partition(it), target)).all().get();
        });
        steps.put("reassignments", it -> {
            Map<String, Object> told = new TreeMap<>();
            admin.listPartitionReassignments().reassignments().get().forEach((where, moving) -> told.put(
                where.toString(), Map.of("adding", moving.addingReplicas(), "removing", moving.removingReplicas())));
            return told;
        });
    }

    private static void cluster(Map<String, Program.Step> steps, Admin admin) {
        steps.put("fenced_brokers", it -> {
            var options = new DescribeClusterOptions().includeFencedBrokers(true);
            return admin.describeCluster(options).nodes().get().stream().filter(Node::isFenced).map(Node::id).toList();
        });
        steps.put("controller", it -> admin.describeCluster().controller().get().id());
        steps.put("quorum", it -> {
            var found = admin.describeMetadataQuorum().quorumInfo().get();
            return Map.of(
                "leader", found.leaderId(),
                "voters", found.voters().stream().map(voter -> voter.replicaId()).sorted().toList(),
                "observers", found.observers().stream().map(observer -> observer.replicaId()).sorted().toList(),
                "high_watermark", found.highWatermark());
        });
        steps.put("features", it -> {
            var found = admin.describeFeatures().featureMetadata().get();
            ToIntFunction<String> level = name -> found.finalizedFeatures().get(name).maxVersionLevel();
            Map<String, Integer> told = new TreeMap<>();
            found.finalizedFeatures().keySet().forEach(name -> told.put(name, level.applyAsInt(name)));
            return told;
        });
        steps.put("log_dirs", it -> {
            Map<String, Object> told = new TreeMap<>();
            List<Integer> brokers = new ArrayList<>();
            it.get("brokers").forEach(broker -> brokers.add(broker.asInt()));
            admin.describeLogDirs(brokers).allDescriptions().get().forEach((broker, dirs) -> {
                List<String> partitions = new ArrayList<>();
                dirs.values().forEach(dir -> dir.replicaInfos().keySet().forEach(where -> partitions.add(where.toString())));
                told.put(String.valueOf(broker), partitions.stream().sorted().toList());
            });
            return told;
        });
        steps.put("config_resources", it -> {
            var type = ConfigResource.Type.valueOf(it.get("type").asText());
            var found = admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions());
            return found.all().get().stream().map(ConfigResource::name).sorted().toList();
        });
        steps.put("unregister", it -> admin.unregisterBroker(it.get("broker").asInt()).all().get());
    }
}
