package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;

/** File names and sizes of a directory. */
final class Files2Json {
    private Files2Json() {}

    static void list(File directory, ObjectNode into) throws IOException {
        for (File file : Directories.plainFiles(directory)) {
            into.put(file.getName(), file.length());
        }
    }
}
