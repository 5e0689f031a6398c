import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN with one node until standard input ends; writes its configuration to the given file. */
public final class Yarn {
  public static void main(String[] arguments) throws Exception {
    YarnConfiguration settings = new YarnConfiguration();
    settings.set("fs.defaultFS", "file:///");
    settings.set("yarn.resourcemanager.hostname", "127.0.0.1");
    settings.set("yarn.nodemanager.hostname", "127.0.0.1");
    settings.set("yarn.nodemanager.bind-host", "127.0.0.1");
    // Java reserves more memory than it uses; a nearly full disk does not matter here.
    settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    settings.set("yarn.minicluster.yarn.nodemanager.resource.memory-mb", "6144");
    settings.setInt("yarn.scheduler.minimum-allocation-mb", 128);
    settings.set("yarn.scheduler.capacity.root.queues", "default");
    settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
    settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
    MiniYARNCluster cluster = new MiniYARNCluster("cleanerd", 1, 1, 1);
    cluster.init(settings);
    cluster.start();
    try (OutputStream file = new FileOutputStream(arguments[0])) {
      cluster.getConfig().writeXml(file);
    }
    System.out.println("ready");
    while (System.in.read() >= 0) {}
    cluster.stop();
    System.exit(0);
  }
}
