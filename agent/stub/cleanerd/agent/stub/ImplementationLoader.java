package cleanerd.agent.stub;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Loads the implementation's classes from {@code implementation/} in the jar, so no class path can have an older copy of
 * them. It reads all of them at once, so the jar may be replaced while they run.
 */
final class ImplementationLoader extends ClassLoader {
    private static final String FOLDER = "implementation/";
    private static final String SUFFIX = ".class";

    private final Map<String, byte[]> classes = new HashMap<>();

    ImplementationLoader(String jar) throws IOException {
        super(ClassLoader.getSystemClassLoader().getParent());
        try (JarFile file = new JarFile(jar)) {
            for (Enumeration<JarEntry> entries = file.entries(); entries.hasMoreElements(); ) {
                JarEntry entry = entries.nextElement();
                String name = entry.getName();
                if (name.startsWith(FOLDER) && name.endsWith(SUFFIX)) {
                    String stem = name.substring(FOLDER.length(), name.length() - SUFFIX.length());
                    classes.put(stem.replace('/', '.'), read(file, entry));
                }
            }
        }
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
        byte[] bytes = classes.get(name);
        if (bytes == null) {
            throw new ClassNotFoundException(name);
        }
        return defineClass(name, bytes, 0, bytes.length);
    }

    private static byte[] read(JarFile file, JarEntry entry) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (InputStream stream = file.getInputStream(entry)) {
            byte[] chunk = new byte[8192];
            for (int count; (count = stream.read(chunk)) > 0; ) {
                bytes.write(chunk, 0, count);
            }
        }
        return bytes.toByteArray();
    }
}
