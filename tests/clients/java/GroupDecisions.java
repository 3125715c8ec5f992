import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/**
 * What Kafka's own classes decide about a group of the new protocol. Each line of the input is a question, with topics as numbers:
 * "assign" asks an assignor for a target assignment, "reconcile" for the next step of a member towards it. Each line of the
 * output is the answer.
 */
final class GroupDecisions {
    private static final ObjectMapper JSON = new ObjectMapper();

    private GroupDecisions() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer;
            try {
                answer = asked.get("op").textValue().equals("assign") ? assign(asked) : reconcile(asked);
            } catch (RuntimeException error) {
                answer = JSON.createObjectNode().put("error", error.getClass().getSimpleName());
            }
            output.append(answer).append('\n');
        }
        System.out.writeBytes(output.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static Uuid topic(String number) {
        return new Uuid(1, Long.parseLong(number));
    }

    private static Set<Integer> numbers(JsonNode array) {
        Set<Integer> found = new HashSet<>();
        array.forEach(it -> found.add(it.intValue()));
        return found;
    }

    private static Map<Uuid, Set<Integer>> parts(JsonNode object) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        object.properties().forEach(it -> found.put(topic(it.getKey()), numbers(it.getValue())));
        return found;
    }

    private static Map<Uuid, Map<Integer, Integer>> epochs(JsonNode object) {
        Map<Uuid, Map<Integer, Integer>> found = new HashMap<>();
        object.properties().forEach(it -> {
            Map<Integer, Integer> of = found.computeIfAbsent(topic(it.getKey()), __ -> new HashMap<>());
            it.getValue().properties().forEach(one -> of.put(Integer.parseInt(one.getKey()), one.getValue().intValue()));
        });
        return found;
    }

    private static ObjectNode assign(JsonNode asked) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        asked.get("members").properties().forEach(it -> {
            JsonNode member = it.getValue();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(one -> topics.add(topic(one.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> previous = parts(member.get("previous"));
            previous.forEach((topic, indexes) -> indexes.forEach(index ->
                inverted.computeIfAbsent(topic, __ -> new HashMap<>()).put(index, it.getKey())));
            members.put(it.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.get("instance").textValue()),
                topics,
                new Assignment(previous)));
        });
        Map<Uuid, Integer> sizes = new HashMap<>();
        asked.get("sizes").properties().forEach(it -> sizes.put(topic(it.getKey()), it.getValue().intValue()));
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return sizes.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").textValue().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment found = assignor.assign(new GroupSpecImpl(members, type, inverted), describer);
        ObjectNode answer = JSON.createObjectNode();
        for (Map.Entry<String, MemberAssignment> it : new TreeMap<>(found.members()).entrySet()) {
            ObjectNode of = answer.putObject(it.getKey());
            it.getValue().partitions().forEach((topic, indexes) -> {
                ArrayNode array = of.putArray(String.valueOf(topic.getLeastSignificantBits()));
                new TreeSet<>(indexes).forEach(array::add);
            });
        }
        return answer;
    }

    private static ObjectNode reconcile(JsonNode asked) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        asked.get("exist").forEach(it -> {
            delta.replay(new TopicRecord().setName("t" + it.asText()).setTopicId(topic(it.asText())));
            delta.replay(new PartitionRecord()
                .setTopicId(topic(it.asText()))
                .setPartitionId(0)
                .setReplicas(List.of(1))
                .setIsr(List.of(1))
                .setLeader(1)
                .setDirectories(List.of(new Uuid(7, 7))));
        });
        CoordinatorMetadataImage image = new KRaftCoordinatorMetadataImage(delta.apply(MetadataProvenance.EMPTY));
        List<String> names = new ArrayList<>();
        asked.get("subscribed").forEach(it -> names.add("t" + it.asText()));
        ConsumerGroupMember member = new ConsumerGroupMember.Builder("m")
            .setMemberEpoch(asked.get("epoch").intValue())
            .setPreviousMemberEpoch(asked.get("previous").intValue())
            .setState(MemberState.fromValue((byte) asked.get("state").intValue()))
            .setSubscribedTopicNames(names)
            .setAssignedPartitions(epochs(asked.get("assigned")))
            .setPartitionsPendingRevocation(epochs(asked.get("revoking")))
            .build();
        Map<Uuid, Set<Integer>> held = parts(asked.get("held"));
        List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = null;
        if (!asked.get("owned").isNull()) {
            owned = new ArrayList<>();
            for (Map.Entry<Uuid, Set<Integer>> it : parts(asked.get("owned")).entrySet()) {
                owned.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions()
                    .setTopicId(it.getKey())
                    .setPartitions(new ArrayList<>(it.getValue())));
            }
        }
        ConsumerGroupMember after = new CurrentAssignmentBuilder(member)
            .withMetadataImage(image)
            .withTargetAssignment(asked.get("target_epoch").intValue(), new Assignment(parts(asked.get("target"))))
            .withHasSubscriptionChanged(asked.get("changed").booleanValue())
            .withCurrentPartitionEpoch((topic, index) -> held.getOrDefault(topic, Set.of()).contains(index) ? 1 : -1)
            .withOwnedTopicPartitions(owned)
            .build();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("epoch", after.memberEpoch()).put("previous", after.previousMemberEpoch()).put("state", after.state().value());
        put(answer.putObject("assigned"), after.assignedPartitions());
        put(answer.putObject("revoking"), after.partitionsPendingRevocation());
        return answer;
    }

    private static void put(ObjectNode node, Map<Uuid, Map<Integer, Integer>> epochs) {
        epochs.forEach((topic, of) -> {
            ObjectNode one = node.putObject(String.valueOf(topic.getLeastSignificantBits()));
            new TreeMap<>(of).forEach((index, epoch) -> one.put(String.valueOf(index), epoch));
        });
    }
}
