package cleanerd.judge;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Partition directories as plain files. */
final class Directories {
    private Directories() {}

    /** Copies the plain files of {@code source} with their times into a new {@code target}. */
    static void copy(File source, File target) throws IOException {
        delete(target);
        Files.createDirectories(target.toPath());
        for (File file : plainFiles(source)) {
            Files.copy(file.toPath(), target.toPath().resolve(file.getName()), StandardCopyOption.COPY_ATTRIBUTES);
        }
    }

    static void delete(File directory) throws IOException {
        if (!directory.exists()) {
            return;
        }
        List<Path> inside;
        try (Stream<Path> walk = Files.walk(directory.toPath())) {
            inside = walk.sorted(Comparator.reverseOrder()).collect(Collectors.toList());
        }
        for (Path path : inside) {
            Files.delete(path);
        }
    }

    static List<File> plainFiles(File directory) throws IOException {
        File[] files = directory.listFiles(File::isFile);
        if (files == null) {
            throw new IOException(directory + " is not a directory");
        }
        return Stream.of(files).sorted().collect(Collectors.toList());
    }

    /** Base offset to {@code .log} file, ascending. */
    static TreeMap<Long, File> segments(File directory) throws IOException {
        TreeMap<Long, File> segments = new TreeMap<>();
        for (File file : plainFiles(directory)) {
            if (file.getName().matches("\\d{20}\\.log")) {
                segments.put(Long.parseLong(file.getName().substring(0, 20)), file);
            }
        }
        return segments;
    }

    static File sibling(File log, String suffix) {
        String name = log.getName();
        return new File(log.getParentFile(), name.substring(0, name.length() - ".log".length()) + suffix);
    }
}
