import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Locks .lock as a broker does, says "locked" or "busy", and holds on until its input ends. Also opens the segments named. */
final class JavaLock {
    private JavaLock() {}

    public static void main(String[] args) throws IOException {
        FileChannel[] segments = new FileChannel[args.length - 1];
        for (int i = 1; i < args.length; i++) {
            segments[i - 1] = FileChannel.open(Path.of(args[i]), StandardOpenOption.READ, StandardOpenOption.WRITE);
        }
        try (FileChannel channel = FileChannel.open(
                Path.of(args[0]), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            FileLock lock = channel.tryLock();
            System.out.println(lock == null ? "busy" : "locked");
            System.in.read();
        }
        for (FileChannel segment : segments) {
            segment.close();
        }
    }
}
