import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

/** Calls of the AdminClient that `Answers` does not make: transactions, voters, tokens, and groups of other kinds. */
class RareAnswers {
    static final TopicPartition HERE = new TopicPartition("rare-answers", 0);
    static final String GROUP = "rare-group";

    final Answers answers;
    final Admin admin;

    RareAnswers(String bootstrap) {
        answers = new Answers(bootstrap);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 12_000, "request.timeout.ms", 8_000));
    }

    void ask(String name, Answers.Question question) {
        answers.ask(name, () -> {
            Object found = question.ask();
            return found instanceof KafkaFuture<?> future ? future.get() : found;
        });
    }

    /** The transactions that these calls have made: what else there is, and its producers, is another on each cluster. */
    static List<String> listed(ListTransactionsResult result) throws Exception {
        return result.all().get().stream().filter(it -> it.transactionalId().startsWith("rare")).map(it ->
            it.transactionalId() + " " + it.state()).sorted().toList();
    }

    void transactions() {
        ask("fenceProducers", () -> admin.fenceProducers(List.of("rare")).all());
        ask("describeTransactions", () -> Answers.each(List.of("never", ""), it ->
            admin.describeTransactions(List.of("never", "")).description(it)));
        ask("listTransactions", () -> listed(admin.listTransactions()));
        for (var states : List.of(Set.of(TransactionState.ONGOING), Set.of(TransactionState.UNKNOWN))) {
            ask("listTransactions " + states, () ->
                listed(admin.listTransactions(new ListTransactionsOptions().filterStates(states))));
        }
        ask("listTransactions of a producer", () ->
            listed(admin.listTransactions(new ListTransactionsOptions().filterProducerIds(Set.of(-1L, 77L)))));
        for (String pattern : List.of("a.*", "", "(?i)x|y")) {
            ask("listTransactions by " + pattern, () ->
                listed(admin.listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern(pattern))));
        }
        refused("listTransactions by what is no pattern", () ->
            admin.listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern("[")).all());
        for (long duration : new long[] {-1, 0, 99_999_999}) {
            ask("listTransactions of " + duration, () ->
                listed(admin.listTransactions(new ListTransactionsOptions().filterOnDuration(duration))));
        }
        ask("describeTransactions, a fenced one", () -> {
            var it = admin.describeTransactions(List.of("rare")).description("rare").get();
            return List.of(it.state(), it.producerEpoch(), it.transactionTimeoutMs(), it.topicPartitions());
        });
        ask("forceTerminateTransaction", () -> admin.forceTerminateTransaction("rare").result());
        ask("forceTerminateTransaction, nobody's", () -> admin.forceTerminateTransaction("nobodys").result());
        for (var of : List.of(HERE, Answers.NO_TOPIC)) {
            for (long id : new long[] {-1, 99}) {
                ask("abortTransaction " + of + " " + id, () ->
                    admin.abortTransaction(new AbortTransactionSpec(of, id, (short) 0, 0)).all());
            }
        }
        ask("abortTransaction, an epoch below 0", () ->
            admin.abortTransaction(new AbortTransactionSpec(HERE, 99, (short) -1, 0)).all());
    }

    /** By the class of the error: the texts name voters, which are others on each cluster. */
    void refused(String name, Answers.Question question) {
        ask(name, () -> {
            try {
                return ((KafkaFuture<?>) question.ask()).get();
            } catch (ExecutionException error) {
                return error.getCause().getClass().getSimpleName();
            }
        });
    }

    void voters() {
        var there = Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1));
        refused("addRaftVoter, an id below 0", () -> admin.addRaftVoter(-1, Uuid.ONE_UUID, there).all());
        refused("addRaftVoter without endpoints", () -> admin.addRaftVoter(77, Uuid.ONE_UUID, Set.of()).all());
        refused("addRaftVoter of another cluster", () -> admin.addRaftVoter(77, Uuid.ONE_UUID, there,
            new AddRaftVoterOptions().setClusterId(Optional.of("another"))).all());
        refused("removeRaftVoter of another cluster", () -> admin.removeRaftVoter(1, Uuid.ONE_UUID,
            new RemoveRaftVoterOptions().setClusterId(Optional.of("another"))).all());
    }

    void tokens() {
        byte[] hmac = {1, 2, 3};
        ask("renewDelegationToken", () -> admin.renewDelegationToken(hmac).expiryTimestamp());
        ask("expireDelegationToken", () -> admin.expireDelegationToken(hmac).expiryTimestamp());
        ask("createDelegationToken for somebody", () -> admin.createDelegationToken(new CreateDelegationTokenOptions()
            .owner(new KafkaPrincipal("User", "a")).renewers(List.of(new KafkaPrincipal("X", "b")))).delegationToken());
        var entry = new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW);
        for (var kind : List.of(PatternType.LITERAL, PatternType.PREFIXED)) {
            ask("createAcls " + kind, () ->
                admin.createAcls(List.of(new AclBinding(new ResourcePattern(ResourceType.TOPIC, "t", kind), entry))).all());
        }
    }

    void groups() {
        ask("listClientMetricsResources", () -> admin.listConfigResources(Set.of(
            ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all());
        ask("alterConsumerGroupOffsets", () ->
            admin.alterConsumerGroupOffsets(GROUP, Map.of(HERE, new OffsetAndMetadata(1))).all());
        for (String name : List.of(GROUP, "nobodys", "")) {
            ask("removeMembersFromConsumerGroup " + name, () ->
                admin.removeMembersFromConsumerGroup(name, new RemoveMembersFromConsumerGroupOptions()).all());
            ask("describeClassicGroups " + name, () -> {
                var it = admin.describeClassicGroups(List.of(name)).describedGroups().get(name).get();
                return List.of(it.groupId(), it.state(), it.protocol(), it.protocolData(), it.members());
            });
        }
        ask("listConsumerGroupOffsets of two", () -> admin.listConsumerGroupOffsets(Map.of(
            GROUP, new ListConsumerGroupOffsetsSpec(), "nobodys", new ListConsumerGroupOffsetsSpec())).all());
    }

    public static void main(String[] args) throws Exception {
        var rare = new RareAnswers(args[0]);
        rare.transactions();
        rare.voters();
        rare.tokens();
        rare.groups();
        rare.admin.close(Duration.ofSeconds(5));
        rare.answers.admin.close(Duration.ofSeconds(5));
    }
}
