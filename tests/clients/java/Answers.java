import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Asks a cluster of nodes 1 to 3 what the AdminClient can ask, and prints one line for each answer: `question: answer`. */
class Answers {
    interface Question {
        Object ask() throws Exception;
    }

    static final TopicPartition FIRST = new TopicPartition("adm", 0);
    static final TopicPartition SECOND = new TopicPartition("adm", 1);
    static final TopicPartition NO_TOPIC = new TopicPartition("nope", 0);
    static final TopicPartition NO_PARTITION = new TopicPartition("adm", 9);
    static final long NOW = 1_760_000_000_000L;

    final Map<String, Object> config;
    final Admin admin;

    Answers(String bootstrap) {
        config = Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 60_000, "request.timeout.ms", 30_000);
        admin = Admin.create(config);
    }

    /** Sets and maps in the order of their texts, errors by class and message, ids of this run as words. */
    static String shown(Object value) {
        if (value instanceof Map<?, ?> map) {
            Map<String, String> sorted = new TreeMap<>();
            map.forEach((key, it) -> sorted.put(shown(key), shown(it)));
            return sorted.toString();
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Answers::shown).toList().toString();
        }
        if (value instanceof Collection<?> set) {
            return set.stream().map(Answers::shown).sorted().toList().toString();
        }
        if (value instanceof Optional<?> optional) {
            return optional.map(Answers::shown).orElse("none");
        }
        if (value instanceof KafkaFuture<?> future) {
            return answer(future::get);
        }
        if (value instanceof ExecutionException wrapped) {
            return shown(wrapped.getCause());
        }
        if (value instanceof Throwable error) {
            return error.getClass().getSimpleName() + ": " + (error instanceof TimeoutException ? "at last" : error.getMessage());
        }
        if (value instanceof DeletedRecords it) {
            return shown(it.lowWatermark());
        }
        if (value instanceof TopicDescription it) {
            return shown(List.of(it.name(), it.isInternal(), it.partitions(), Optional.ofNullable(it.authorizedOperations())));
        }
        if (value instanceof UserScramCredentialsDescription it) {
            return shown(Map.of(it.name(), Set.copyOf(it.credentialInfos())));
        }
        return String.valueOf(value);
    }

    static String answer(Question question) {
        try {
            return shown(question.ask());
        } catch (Exception error) {
            return shown(error);
        }
    }

    void ask(String name, Question question) {
        System.out.println(name + ": " + answer(question).replace("\n", " "));
    }

    static <K, V> Map<String, String> each(Collection<K> keys, java.util.function.Function<K, KafkaFuture<V>> future) {
        Map<String, String> told = new TreeMap<>();
        keys.forEach(key -> told.put(shown(key), shown(future.apply(key))));
        return told;
    }

    static <K, V> Map<K, V> all(Collection<K> keys, V value) {
        return keys.stream().collect(Collectors.toMap(it -> it, it -> value));
    }

    void cluster() {
        for (boolean more : new boolean[] {false, true}) {
            var options = new DescribeClusterOptions().includeFencedBrokers(more).includeAuthorizedOperations(more);
            ask("describeCluster nodes, " + more, () -> admin.describeCluster(options).nodes().get().stream().map(it ->
                List.of(it.id(), it.hasRack(), it.isFenced())).collect(Collectors.toSet()));
            ask("describeCluster operations, " + more, () -> admin.describeCluster(options).authorizedOperations());
        }
        ask("describeFeatures, metadata.version", () ->
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("metadata.version"));
        ask("describeFeatures, group.version", () ->
            admin.describeFeatures().featureMetadata().get().supportedFeatures().get("group.version"));
        for (var type : List.of(FeatureUpdate.UpgradeType.UPGRADE, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE,
            FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)) {
            for (short level : new short[] {0, 1, 2}) {
                ask("updateFeatures " + type + " " + level, () -> {
                    var update = Map.of("group.version", new FeatureUpdate(level, type));
                    return admin.updateFeatures(update, new UpdateFeaturesOptions().validateOnly(true)).values();
                });
            }
        }
        ask("quorum voters", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().stream().map(it ->
            it.replicaId()).sorted().toList());
        ask("quorum observers", () -> admin.describeMetadataQuorum().quorumInfo().get().observers().size());
        ask("unregister nobody", () -> admin.unregisterBroker(77).all());
        ask("unregister a negative id", () -> admin.unregisterBroker(-1).all());
        ask("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        ask("deleteAcls", () -> admin.deleteAcls(List.of(new AclBindingFilter(ResourcePatternFilter.ANY,
            AccessControlEntryFilter.ANY))).all());
        ask("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        ask("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
    }

    void topics() {
        var names = List.of("adm", "nope", "bad name", "");
        ask("describeTopics", () -> each(names, it -> admin.describeTopics(List.of(it)).topicNameValues().get(it)));
        var options = new DescribeTopicsOptions().includeAuthorizedOperations(true).partitionSizeLimitPerResponse(1);
        ask("describeTopics, operations", () -> admin.describeTopics(List.of("adm"), options).allTopicNames());
        ask("describeTopics by id", () ->
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).allTopicIds());
        ask("describeTopics, the id of nobody", () ->
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.ZERO_UUID))).allTopicIds());
        ask("listTopics", () -> admin.listTopics(new ListTopicsOptions().listInternal(false)).names().get().contains("adm"));
        ask("createTopics", () -> {
            var wanted = Stream.of(
                new NewTopic("fine", 2, (short) 2), new NewTopic("adm", 1, (short) 1), new NewTopic("x", 0, (short) 1),
                new NewTopic("y", Map.of(0, List.of(1), 2, List.of(1))),
                new NewTopic("z", 1, (short) 1).configs(Map.of("retention.ms", "x"))).toList();
            var result = admin.createTopics(wanted, new CreateTopicsOptions().validateOnly(true));
            return each(result.values().keySet(), it -> result.values().get(it));
        });
        ask("createTopics, what is told", () -> {
            var result = admin.createTopics(List.of(new NewTopic("fine", 2, (short) 2).configs(Map.of("retention.ms", "77"))),
                new CreateTopicsOptions().validateOnly(true));
            return List.of(result.numPartitions("fine"), result.replicationFactor("fine"), result.config("fine").get()
                .get("retention.ms"));
        });
        for (var name : List.of("adm", "nope", "bad name")) {
            ask("createPartitions " + name, () ->
                admin.createPartitions(Map.of(name, NewPartitions.increaseTo(1)), new CreatePartitionsOptions()
                .validateOnly(true)).all());
        }
        ask("deleteTopics", () -> admin.deleteTopics(List.of("nope")).topicNameValues());
        ask("deleteTopics by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).topicIdValues());
    }

    void records() {
        var specs = new TreeMap<String, OffsetSpec>(Map.of(
            "earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "max timestamp", OffsetSpec.maxTimestamp(),
            "earliest local", OffsetSpec.earliestLocal(), "latest tiered", OffsetSpec.latestTiered(),
            "at", OffsetSpec.forTimestamp(NOW + 1), "before", OffsetSpec.forTimestamp(1), "behind",
                OffsetSpec.forTimestamp(NOW + 99_999)));
        for (var isolation : IsolationLevel.values()) {
            specs.forEach((name, spec) -> {
                var where = List.of(FIRST, SECOND);
                ask("listOffsets " + name + ", " + isolation, () -> {
                    var result = admin.listOffsets(all(where, spec), new ListOffsetsOptions(isolation));
                    return each(where, result::partitionResult);
                });
            });
        }
        for (var where : List.of(NO_TOPIC, NO_PARTITION)) {
            ask("listOffsets of " + where, () ->
                admin.listOffsets(Map.of(where, OffsetSpec.latest()), new ListOffsetsOptions().timeoutMs(1500)).all());
        }
        ask("deleteRecords", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(1))).lowWatermarks());
        ask("deleteRecords, too far", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(99))).lowWatermarks());
        ask("deleteRecords, unknown topic", () ->
            admin.deleteRecords(Map.of(NO_TOPIC, RecordsToDelete.beforeOffset(1)), new DeleteRecordsOptions().timeoutMs(1500))
            .lowWatermarks());
        ask("describeProducers", () ->
            admin.describeProducers(List.of(FIRST, SECOND)).all().get().entrySet().stream().collect(Collectors.toMap(
            Map.Entry::getKey, it -> it.getValue().activeProducers().stream().map(p -> List.of(
                p.producerEpoch(), p.lastSequence(), p.lastTimestamp() > 0, p.coordinatorEpoch(),
                    p.currentTransactionStartOffset())).toList())));
        ask("describeProducers of a follower", () ->
            admin.describeProducers(List.of(FIRST), new DescribeProducersOptions().brokerId(2)).all().get().get(FIRST)
            .activeProducers().size());
        ask("describeProducers of who has it not", () ->
            admin.describeProducers(List.of(new TopicPartition("adm-pair", 0)), new DescribeProducersOptions().brokerId(3)
            .timeoutMs(1500)).all());
        ask("describeLogDirs", () -> {
            Map<Integer, Object> told = new TreeMap<>();
            for (var broker : List.of(1, 2, 3)) {
                admin.describeLogDirs(List.of(broker)).descriptions().get(broker).get().values().forEach(dir ->
                    told.put(broker, List.of(
                    String.valueOf(dir.error()), dir.replicaInfos().entrySet().stream().filter(it ->
                        it.getKey().topic().startsWith("adm"))
                        .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue)))));
            }
            return told;
        });
        ask("describeLogDirs of nobody", () ->
            admin.describeLogDirs(List.of(9), new DescribeLogDirsOptions().timeoutMs(1500)).descriptions().get(9));
        ask("describeReplicaLogDirs", () -> {
            var where = Set.of(new TopicPartitionReplica("adm", 0, 1), new TopicPartitionReplica("nope", 0, 1));
            var result = admin.describeReplicaLogDirs(where).values();
            return each(where, it -> result.get(it).thenApply(dir ->
                List.of(dir.getCurrentReplicaLogDir() == null, dir.getCurrentReplicaOffsetLag(),
                dir.getFutureReplicaOffsetLag())));
        });
        ask("alterReplicaLogDirs", () ->
            admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("adm", 0, 1), "/nowhere")).all());
    }

    void moves() {
        for (var type : ElectionType.values()) {
            for (var where : List.of(FIRST, NO_TOPIC, NO_PARTITION)) {
                ask("electLeaders " + type + " " + where, () -> admin.electLeaders(type, Set.of(where)).partitions());
            }
        }
        ask("electLeaders of all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions());
        ask("electLeaders unclean of all", () -> admin.electLeaders(ElectionType.UNCLEAN, null).partitions());
        ask("electLeaders of none", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of()).partitions());
        var plans = new TreeMap<String, List<Integer>>(Map.of("the same", List.of(1, 2, 3), "unknown", List.of(9), "twice",
            List.of(1, 1), "none", List.of(), "negative", List.of(-1)));
        for (var where : List.of(FIRST, NO_TOPIC, NO_PARTITION)) {
            plans.forEach((name, plan) -> ask("reassign " + where + ", " + name, () ->
                admin.alterPartitionReassignments(Map.of(where, Optional.of(new NewPartitionReassignment(plan)))).values()));
            ask("reassign " + where + ", cancel", () ->
                admin.alterPartitionReassignments(Map.of(where, Optional.<NewPartitionReassignment>empty())).values());
        }
        ask("reassign, more replicas", () ->
            admin.alterPartitionReassignments(Map.of(new TopicPartition("adm-pair", 0),
            Optional.of(new NewPartitionReassignment(List.of(1, 2, 3)))),
            new AlterPartitionReassignmentsOptions().allowReplicationFactorChange(false)).values());
        ask("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        ask("listPartitionReassignments of some", () ->
            admin.listPartitionReassignments(Set.of(FIRST, NO_TOPIC, NO_PARTITION)).reassignments());
    }

    static ClientQuotaEntity entity(String... names) {
        Map<String, String> entries = new HashMap<>();
        for (int n = 0; n < names.length; n += 2) {
            entries.put(names[n], names[n + 1]);
        }
        return new ClientQuotaEntity(entries);
    }

    void quotas() {
        List<ClientQuotaEntity> entities = List.of(
            entity("user", "u"), entity("user", null), entity("client-id", "c"), entity("user", "u", "client-id", "c"),
                entity("user", "u", "client-id", null), entity("ip", "127.0.0.1"));
        for (var entity : entities) {
            String key = entity.entries().containsKey("ip") ? "connection_creation_rate" : "producer_byte_rate";
            ask("alterClientQuotas " + shown(entity.entries()), () ->
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key,
                1000.0))))).values());
        }
        var bad = new TreeMap<String, ClientQuotaAlteration>(Map.of(
            "no such key", new ClientQuotaAlteration(entity("user", "u"), List.of(new ClientQuotaAlteration.Op("nope", 1.0))),
            "a key of others", new ClientQuotaAlteration(entity("ip", "127.0.0.1"),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0))),
            "negative", new ClientQuotaAlteration(entity("user", "u"), List.of(new ClientQuotaAlteration.Op("producer_byte_rate",
                -1.0))),
            "a fraction", new ClientQuotaAlteration(entity("user", "u"),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.5))),
            "a percentage", new ClientQuotaAlteration(entity("user", "u"),
                List.of(new ClientQuotaAlteration.Op("request_percentage", 1.5))),
            "no such kind", new ClientQuotaAlteration(entity("nope", "u"),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0))),
            "ip and user", new ClientQuotaAlteration(entity("ip", "127.0.0.1", "user", "u"),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0))),
            "no entity", new ClientQuotaAlteration(entity(), List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0))),
            "empty name", new ClientQuotaAlteration(entity("user", ""), List.of(new ClientQuotaAlteration.Op("producer_byte_rate",
                1.0)))));
        bad.forEach((name, it) -> ask("alterClientQuotas, " + name, () ->
            admin.alterClientQuotas(List.of(it), new AlterClientQuotasOptions().validateOnly(true)).all()));
        ask("describeClientQuotas of all", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        for (var kind : List.of("user", "client-id", "ip", "nope")) {
            var components = new TreeMap<String, ClientQuotaFilterComponent>(Map.of(
                "u", ClientQuotaFilterComponent.ofEntity(kind, "u"), "default", ClientQuotaFilterComponent.ofDefaultEntity(kind),
                    "any", ClientQuotaFilterComponent.ofEntityType(kind)));
            components.forEach((name, it) -> {
                ask("describeClientQuotas " + kind + " " + name, () ->
                    admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(it))).entities());
                ask("describeClientQuotas only " + kind + " " + name, () ->
                    admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of(it))).entities());
            });
        }
        ask("describeClientQuotas twice", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(
            ClientQuotaFilterComponent.ofEntityType("user"), ClientQuotaFilterComponent.ofEntity("user", "u")))).entities());
        ask("describeClientQuotas ip and user", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(
            ClientQuotaFilterComponent.ofEntityType("user"), ClientQuotaFilterComponent.ofEntityType("ip")))).entities());
        ask("describeClientQuotas of nothing", () ->
            admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of())).entities());
    }

    void credentials() {
        for (var mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
            for (int iterations : new int[] {1, 4096, 16384, 16385}) {
                var change = new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(mechanism, iterations), "secret");
                ask("alterUserScramCredentials " + mechanism + " " + iterations, () ->
                    admin.alterUserScramCredentials(List.of(change)).all());
            }
        }
        ask("alterUserScramCredentials, no name", () ->
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all());
        ask("alterUserScramCredentials, delete nobody", () ->
            admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256)))
            .all());
        ask("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all());
        ask("describeUserScramCredentials of users", () -> {
            var result = admin.describeUserScramCredentials(List.of("alice", "nobody"));
            return List.of(shown(result.users()), shown(result.description("alice")), shown(result.description("nobody")));
        });
        ask("describeUserScramCredentials twice", () -> admin.describeUserScramCredentials(List.of("alice", "alice")).all());
        ask("describeUserScramCredentials of no name", () -> admin.describeUserScramCredentials(List.of("")).all());
    }

    void configs() {
        var resources = List.of(
            new ConfigResource(ConfigResource.Type.TOPIC, "adm"), new ConfigResource(ConfigResource.Type.BROKER, "1"),
                new ConfigResource(ConfigResource.Type.BROKER, ""),
            new ConfigResource(ConfigResource.Type.GROUP, "adm-group"), new ConfigResource(ConfigResource.Type.CLIENT_METRICS,
                "adm-metrics"), new ConfigResource(ConfigResource.Type.TOPIC, "nope"));
        var changes = new TreeMap<String, AlterConfigOp>();
        List.of("retention.ms", "log.cleaner.threads", "consumer.session.timeout.ms", "interval.ms", "log.retention.ms",
            "max.connections").forEach(key -> {
            for (var value : new String[] {"50000", "", "x", null}) {
                for (var type : AlterConfigOp.OpType.values()) {
                    changes.put(key + " " + type + " " + value, new AlterConfigOp(new ConfigEntry(key, value), type));
                }
            }
        });
        for (var resource : resources) {
            changes.forEach((name, change) -> ask("incrementalAlterConfigs " + resource + " " + name,
                () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change)), new AlterConfigsOptions()
                    .validateOnly(true)).all()));
        }
        for (var type : EnumSet.complementOf(EnumSet.of(ConfigResource.Type.UNKNOWN))) {
            ask("listConfigResources " + type, () ->
                admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions()).all().get().stream()
                .filter(it -> it.type() != ConfigResource.Type.TOPIC || it.name().startsWith("adm")).collect(Collectors.toSet()));
        }
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(false);
        ask("describeConfigs of a topic", () ->
            admin.describeConfigs(List.of(resources.get(0)), options).all().get().values().iterator().next().entries()
            .stream().filter(it -> !it.name().equals("min.insync.replicas")).collect(Collectors.toSet()));
        ask("describeConfigs of nothing", () -> admin.describeConfigs(List.of(resources.get(5)), options).all());
    }

    void groups() throws Exception {
        var bytes = new ByteArrayDeserializer();
        admin.alterConsumerGroupOffsets("adm-simple", Map.of(FIRST, new OffsetAndMetadata(2, Optional.of(0), "kept"))).all()
            .get();
        try (
            var classic = new KafkaConsumer<>(more("group.id", "adm-classic", "group.protocol", "classic", "client.id", "one"),
                bytes, bytes);
            var modern = new KafkaConsumer<>(more("group.id", "adm-modern", "group.protocol", "consumer", "client.id", "two"),
                bytes, bytes)) {
            for (var consumer : List.of(classic, modern)) {
                consumer.subscribe(List.of("adm"));
                for (int n = 0; n < 600 && consumer.assignment().isEmpty(); n++) {
                    consumer.poll(Duration.ofMillis(100));
                }
                consumer.commitSync(Map.of(FIRST, new OffsetAndMetadata(2, Optional.of(0), "")));
            }
            ask("listTopics, internal", () ->
                admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings().get().get("__consumer_offsets")
                .isInternal());
            filters();
            described();
            offsets();
        }
        ask("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("adm-simple", "nope")).deletedGroups());
        ask("removeMembers of nobody", () ->
            admin.removeMembersFromConsumerGroup("nope", new RemoveMembersFromConsumerGroupOptions()).all());
        ask("removeMember who is not", () ->
            admin.removeMembersFromConsumerGroup("adm-classic",
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("x")))).all());
    }

    Map<String, Object> more(String... settings) {
        Map<String, Object> told = new HashMap<>(config);
        for (int n = 0; n < settings.length; n += 2) {
            told.put(settings[n], settings[n + 1]);
        }
        return told;
    }

    void filters() {
        Map<String, ListGroupsOptions> filters = new TreeMap<>();
        filters.put("all", new ListGroupsOptions());
        for (var type : GroupType.values()) {
            filters.put("type " + type, new ListGroupsOptions().withTypes(Set.of(type)));
        }
        for (var state : GroupState.values()) {
            filters.put("state " + state, new ListGroupsOptions().inGroupStates(Set.of(state)));
        }
        for (var protocol : List.of("consumer", "", "connect", "share")) {
            filters.put("protocol '" + protocol + "'", new ListGroupsOptions().withProtocolTypes(Set.of(protocol)));
        }
        filters.put("for consumer groups", ListGroupsOptions.forConsumerGroups());
        filters.put("for share groups", ListGroupsOptions.forShareGroups());
        filters.put("for streams groups", ListGroupsOptions.forStreamsGroups());
        filters.forEach((name, options) -> ask("listGroups, " + name,
            () -> admin.listGroups(options).all().get().stream().filter(it ->
                it.groupId().startsWith("adm")).collect(Collectors.toSet())));
    }

    void described() {
        var names = List.of("adm-classic", "adm-modern", "adm-simple", "nope", "");
        for (boolean operations : new boolean[] {false, true}) {
            names.forEach(it -> ask("describeConsumerGroups '" + it + "', " + operations, () ->
                admin.describeConsumerGroups(List.of(it),
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(operations)).describedGroups().get(it)
                    .thenApply(Answers::told)));
        }
        ask("describeClassicGroups", () -> each(names, it -> admin.describeClassicGroups(List.of(it)).describedGroups().get(it)
            .thenApply(found -> List.of(found.groupId(), found.protocol(), found.protocolData(), found.isSimpleConsumerGroup(),
                found.state(), found.members().size()))));
        ask("describeShareGroups", () -> each(names.subList(0, 2), it ->
            admin.describeShareGroups(List.of(it)).describedGroups().get(it)));
    }

    static List<Object> told(ConsumerGroupDescription it) {
        return List.of(it.groupId(), it.type(), it.groupState(), it.partitionAssignor(), it.isSimpleConsumerGroup(),
            it.groupEpoch(), it.targetAssignmentEpoch(),
            Optional.ofNullable(it.authorizedOperations()), it.members().stream().map(member -> shown(List.of(
                member.clientId(), member.host(), member.groupInstanceId(), member.assignment().topicPartitions(),
                    member.targetAssignment().map(MemberAssignment::topicPartitions), member.memberEpoch(), member.upgraded())))
                    .toList());
    }

    void offsets() {
        for (var name : List.of("adm-classic", "adm-modern", "adm-simple", "nope", "")) {
            ask("listConsumerGroupOffsets '" + name + "'", () ->
                admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata());
            ask("listConsumerGroupOffsets '" + name + "' of some", () ->
                admin.listConsumerGroupOffsets(Map.of(name, new ListConsumerGroupOffsetsSpec()
                .topicPartitions(Arrays.asList(FIRST, NO_TOPIC, NO_PARTITION))),
                new ListConsumerGroupOffsetsOptions().requireStable(true)).partitionsToOffsetAndMetadata(name));
            for (var where : List.of(FIRST, NO_TOPIC, NO_PARTITION)) {
                ask("alterConsumerGroupOffsets '" + name + "' " + where, () ->
                    admin.alterConsumerGroupOffsets(name, Map.of(where, new OffsetAndMetadata(1))).all());
                ask("deleteConsumerGroupOffsets '" + name + "' " + where, () ->
                    admin.deleteConsumerGroupOffsets(name, Set.of(where)).all());
            }
            ask("deleteConsumerGroups '" + name + "'", () ->
                name.equals("adm-simple") ? "later" : admin.deleteConsumerGroups(List.of(name)).all());
        }
    }

    public static void main(String[] args) throws Exception {
        var answers = new Answers(args[0]);
        var bytes = new ByteArraySerializer();
        try (answers.admin; var producer = new KafkaProducer<>(answers.more("compression.type", "none", "linger.ms", "0",
            "batch.size", "0"), bytes, bytes)) {
            for (int n = 0; n < 3; n++) {
                producer.send(new ProducerRecord<>("adm", 0, NOW + n, new byte[] {1}, new byte[] {2})).get();
            }
            answers.cluster();
            answers.topics();
            answers.records();
            answers.moves();
            answers.quotas();
            answers.credentials();
            answers.configs();
            answers.groups();
        }
    }
}
