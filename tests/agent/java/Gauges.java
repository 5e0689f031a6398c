import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints a broker's gauges of logs, one topic per line: java Gauges.java PORT. */
final class Gauges {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            ObjectName logs = new ObjectName("kafka.log:type=Log,name=NumLogSegments,*");
            for (ObjectName bean : connector.getMBeanServerConnection().queryNames(logs, null)) {
                System.out.println(bean.getKeyProperty("topic"));
            }
        }
    }
}
