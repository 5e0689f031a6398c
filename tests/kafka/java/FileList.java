package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;

/** File names and sizes of a directory. */
final class FileList {
    private FileList() {}

    static void write(File directory, ObjectNode into) throws IOException {
        for (File file : Directories.plainFiles(directory)) {
            into.put(file.getName(), file.length());
        }
    }
}
