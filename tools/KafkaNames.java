import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * The settings that one release of Kafka documents: {@code java -cp 'libs/*' KafkaNames.java}, a line a name, "broker NAME" or "topic NAME".
 *
 * <p>It asks the definitions that the release itself checks its configuration by. By reflection, because their classes moved from release to
 * release. What a definition calls internal is not documented, and left out.
 */
final class KafkaNames {
    private static final List<String> CLASSES = List.of(
            "kafka.server.KafkaConfig",
            "org.apache.kafka.server.config.AbstractKafkaConfig",
            "org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig",
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManagerConfig",
            "kafka.log.LogConfig",
            "org.apache.kafka.storage.internals.log.LogConfig");

    public static void main(String[] arguments) throws Exception {
        for (String name : CLASSES) {
            for (Object definition : definitions(name)) {
                print(definition);
            }
        }
    }

    /** The ConfigDefs that a class holds or hands out; those of a Scala object are in the class with a $. */
    private static List<Object> definitions(String name) throws Exception {
        List<Object> found = new ArrayList<>();
        for (String each : List.of(name, name + "$")) {
            Class<?> type;
            try {
                type = Class.forName(each);
            } catch (ClassNotFoundException | NoClassDefFoundError e) {
                continue; // not a class of this release
            }
            Object module = null;
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals("MODULE$")) {
                    module = field.get(null);
                }
            }
            for (Method method : type.getDeclaredMethods()) {
                boolean reached = Modifier.isStatic(method.getModifiers()) || module != null;
                if (reached && method.getParameterCount() == 0 && isDefinition(method.getReturnType())) {
                    method.setAccessible(true);
                    found.add(method.invoke(module));
                }
            }
            for (Field field : type.getDeclaredFields()) {
                boolean reached = Modifier.isStatic(field.getModifiers()) || module != null;
                if (reached && isDefinition(field.getType())) {
                    field.setAccessible(true);
                    found.add(field.get(module));
                }
            }
        }
        return found;
    }

    private static boolean isDefinition(Class<?> type) {
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            if (each.getName().equals("org.apache.kafka.common.config.ConfigDef")) {
                return true;
            }
        }
        return false;
    }

    private static void print(Object definition) throws Exception {
        Map<?, ?> keys = (Map<?, ?>) definition.getClass().getMethod("configKeys").invoke(definition);
        // A class of logs also holds the broker's settings about logs; each has its own definition.
        String kind = keys.containsKey("cleanup.policy") ? "topic" : "broker";
        for (Map.Entry<?, ?> key : keys.entrySet()) {
            Object about = key.getValue();
            if (!about.getClass().getField("internalConfig").getBoolean(about)) {
                System.out.println(kind + " " + key.getKey());
            }
        }
    }
}
