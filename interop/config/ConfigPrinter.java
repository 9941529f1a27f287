import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what Kafka knows about its keys, one fact a line, parted by tabs. */
public class ConfigPrinter {
    static void keys(String kind, ConfigDef def) {
        for (ConfigDef.ConfigKey k : new TreeMap<>(def.configKeys()).values()) {
            String value = k.defaultValue == null ? "\\N" : ConfigDef.convertToString(k.defaultValue, k.type);
            System.out.println(String.join("\t", kind, k.name, k.type.toString(), value, k.importance.toString(), String.valueOf(k.internalConfig)));
        }
    }

    static void names(String kind, Object owner, String method) throws Exception {
        java.lang.reflect.Method m = owner.getClass().getDeclaredMethod(method);
        m.setAccessible(true);
        scala.collection.Iterator<?> it = ((scala.collection.Iterable<?>) m.invoke(owner)).iterator();
        TreeSet<String> sorted = new TreeSet<>();
        while (it.hasNext()) {
            sorted.add(it.next().toString());
        }
        for (String s : sorted) {
            System.out.println(kind + "\t" + s);
        }
    }

    static Object singleton(String name) throws Exception {
        return Class.forName(name + "$").getField("MODULE$").get(null);
    }

    public static void main(String[] args) throws Exception {
        Object config = singleton("kafka.server.KafkaConfig");
        keys("broker", (ConfigDef) config.getClass().getMethod("configDef").invoke(config));
        keys("topic", LogConfig.configDefCopy());
        Object dynamic = singleton("kafka.server.DynamicBrokerConfig");
        names("dynamic", dynamic, "AllDynamicConfigs");
        names("per-broker", dynamic, "PerBrokerConfigs");
        names("listener-only", dynamic, "DynamicSecurityConfigs");
        for (Map.Entry<String, java.util.List<ConfigSynonym>> e : new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
            ArrayList<String> list = new ArrayList<>();
            for (ConfigSynonym s : e.getValue()) {
                list.add(s.name() + "*" + s.converter().apply("1"));
            }
            System.out.println("synonyms\t" + e.getKey() + "\t" + String.join(",", list));
        }
    }
}
