import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS of one name node and one data node below the given directory; lines of standard input are its commands. */
public final class Hdfs {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(1).build();
    cluster.waitActive();
    Path archive = new Path("/archive");
    cluster.getFileSystem().mkdirs(archive);
    cluster.getFileSystem().setPermission(archive, new FsPermission((short) 0777));
    System.out.println(cluster.getNameNodePort());
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    MiniDFSCluster.DataNodeProperties stopped = null;
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      switch (line) {
        case "stop data" -> stopped = cluster.stopDataNode(0);
        case "start data" -> cluster.restartDataNode(stopped, true);
        case "stop name" -> cluster.shutdownNameNode(0);
        case "start name" -> cluster.restartNameNode(0, true);
        case "lock" -> cluster.getFileSystem().setPermission(new Path("/archive/locked"), new FsPermission((short) 0));
        default -> throw new IllegalArgumentException(line);
      }
      if (line.startsWith("start")) cluster.waitActive();
      System.out.println("done");
    }
    cluster.shutdown();
    System.exit(0);
  }
}
