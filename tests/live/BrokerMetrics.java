import java.util.TreeSet;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * The gauges of a running broker's log cleaner and log directories: java BrokerMetrics.java PORT.
 *
 * <p>One line each: name, log directory (empty: of the whole broker), value; tabs between.
 */
final class BrokerMetrics {
    private static final String[] TYPES = {"LogCleaner", "LogCleanerManager", "LogManager"};

    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            for (String type : TYPES) {
                ObjectName all = new ObjectName("kafka.log:type=" + type + ",*");
                for (ObjectName bean : new TreeSet<>(beans.queryNames(all, null))) {
                    String directory = unquoted(bean.getKeyProperty("logDirectory"));
                    Object value = beans.getAttribute(bean, "Value");
                    System.out.println(bean.getKeyProperty("name") + "\t" + directory + "\t" + value);
                }
            }
        }
    }

    /** Kafka quotes a tag with a slash. */
    private static String unquoted(String tag) {
        return tag == null ? "" : tag.startsWith("\"") ? ObjectName.unquote(tag) : tag;
    }
}
