import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** Every key of a broker's and a controller's configuration, one a line: name, type, default ("-" if it has none or null). */
public final class ConfigKeys {
    private ConfigKeys() {}

    public static void main(String[] args) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).values()) {
            String usual = key.hasDefault() && key.defaultValue != null ? ConfigDef.convertToString(key.defaultValue, key.type) : "-";
            System.out.println(key.name + "\t" + key.type + "\t" + usual);
        }
    }
}
